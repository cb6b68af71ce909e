"""Stage `memory`: does every byte of the card's free memory hold what is written to it?

All that is free, less a margin, is taken in blocks. Each pass fills every block and only then reads them back, so
that nothing comes out of a cache. Word `i` of all (64 bits, counted through the blocks) holds

    (i × multiplier + offset) mod 2^64

With an odd multiplier no two words are equal, so an address line that is stuck shows; each pattern is followed by
its complement, so every cell has held a 0 and a 1. Everything is compared on the card, in whole words, in pieces
so small that the expected words stay in its L2 cache.
"""

from typing import Any, Dict, List, Tuple

MARGIN_BYTES = 512 * 2**20
"""Left free: torch's and the libraries' own needs, and what else a driver takes meanwhile."""

BLOCK_BYTES = 4 * 2**30
CPU_BLOCK_BYTES = 32 * 2**20
CPU_BYTES = 128 * 2**20
LEAST_BLOCK_BYTES = 64 * 2**20
"""Where memory runs out, blocks are halved down to this; less is within the margin."""

PIECE_BYTES = 32 * 2**20
"""Compared at once. An H200 has 50 MiB of L2; three launches a piece are still little beside its 8 µs."""

EXAMPLES = 10
WORD = 8

ADDRESSES = 0x9E3779B97F4A7C15
"""2^64 ÷ the golden ratio, made odd: neighbours differ in about half of their bits."""

OTHER_ADDRESSES = 0xC2B2AE3D27D4EB4F
STANDARD = (("addresses", ADDRESSES, 0x243F6A8885A308D3),)
FULL = (
    *STANDARD,
    ("other addresses", OTHER_ADDRESSES, 0x13198A2E03707344),
    ("zeros", 0, 0),
    ("stripes", 0, 0x5555555555555555),
)
"""(name, multiplier, offset)."""


class Block:
    """A piece of the card's memory, in words."""

    def __init__(self, worker: Any, words: int) -> None:
        torch = worker.torch
        self.words = words
        self._memory = torch.empty(words, dtype=torch.int64, device=worker.device)

    def write(self, start: int, words: Any) -> Any:
        """Where to put words from `start` on: a view that is written in place."""
        return self._memory[start : start + words]

    def read(self, start: int, words: int) -> Any:
        return self._memory[start : start + words]


def run(worker: Any, arguments: Dict[str, Any]) -> Dict[str, Any]:
    """Arguments: `level`, `standard` (one pattern and its complement) or `full` (four).

    Answers the check `memory.pattern`: `compared` counts bytes over all passes; `covered` is the share of the card
    whose pattern and complement were both compared (left out on the CPU, whose memory is not the subject);
    `stopped` says why where not all that was taken could be gone through. `memory` holds bytes: `total`, `free`
    before, `taken`. Raises what torch raises, but not where memory ran out after something had been compared.
    """
    return Test(worker, FULL if arguments.get("level") == "full" else STANDARD).run()


class Test:
    """One run over the memory."""

    def __init__(self, worker: Any, patterns: Tuple[Tuple[str, int, int], ...]) -> None:
        self.worker = worker
        self.torch = worker.torch
        self.passes: List[Tuple[str, int, int]] = []
        for name, multiplier, offset in patterns:
            self.passes += [(name, multiplier, offset), ("complement of " + name, -multiplier, ~offset)]
        self.blocks: List[Any] = []
        self.compared: List[int] = []
        """Passes compared, a block."""
        self.wrong = 0
        self.examples: List[str] = []
        self.stopped = ""

    def run(self) -> Dict[str, Any]:
        worker, torch = self.worker, self.torch
        on_card = worker.backend != "cpu"
        if on_card:
            torch.cuda.empty_cache()
            free, total = torch.cuda.mem_get_info(worker.device)
        else:
            free, total = CPU_BYTES + MARGIN_BYTES, 0
        # First of all, while there is memory.
        words = PIECE_BYTES // WORD
        self.ramp = torch.empty(words, dtype=torch.int64, device=worker.device)
        self.expected = torch.empty_like(self.ramp)
        self.differs = torch.empty(words, dtype=torch.bool, device=worker.device)
        worker.step("allocate")
        self.allocate(free - MARGIN_BYTES, BLOCK_BYTES if on_card else CPU_BLOCK_BYTES)
        taken = sum(block.words for block in self.blocks) * WORD
        try:
            for number, (name, multiplier, offset) in enumerate(self.passes):
                self.go_through(number, name, multiplier, offset)
        except Exception as error:
            if not out_of_memory(torch, error) or not any(self.compared):
                raise
            self.stopped = "out of memory during a pass: %s" % first_line(error)
        finally:
            sizes = [block.words * WORD for block in self.blocks]
            self.blocks.clear()
        check = {
            "check": "memory.pattern",
            "compared": sum(size * passes for size, passes in zip(sizes, self.compared)),
            "wrong": self.wrong,
            "examples": self.examples,
        }
        if on_card:
            check["covered"] = sum(s for s, passes in zip(sizes, self.compared) if passes >= 2) / total
        answer: Dict[str, Any] = {
            "rows": [],
            "checks": [check],
            "memory": {"total": total, "free": free, "taken": taken},
        }
        if self.stopped:
            answer["stopped"] = self.stopped
        return answer

    def allocate(self, wanted: int, size: int) -> None:
        """Blocks of `size` bytes, the last ones smaller, until `wanted` bytes are taken or no more can be had."""
        while wanted >= WORD and not (self.stopped and size < LEAST_BLOCK_BYTES):
            try:
                self.blocks.append(Block(self.worker, min(size, wanted) // WORD))
            except Exception as error:
                if not out_of_memory(self.torch, error):
                    raise
                size //= 2
                self.stopped = "%d bytes less than were free could be taken: %s" % (wanted, first_line(error))
                continue
            wanted -= self.blocks[-1].words * WORD
        self.compared = [0] * len(self.blocks)
        if not self.blocks:
            raise MemoryError(self.stopped or "no memory is free beside the margin")
        if wanted < MARGIN_BYTES:
            self.stopped = ""

    def go_through(self, number: int, name: str, multiplier: int, offset: int) -> None:
        """Fill every block, then compare every block."""
        torch, worker = self.torch, self.worker
        steps = 2 * len(self.blocks)
        torch.arange(self.ramp.numel(), out=self.ramp)
        self.ramp.mul_(signed(multiplier))
        for filling in (True, False):
            worker.step("%s %s" % ("write" if filling else "compare", name))
            first = 0
            for index, block in enumerate(self.blocks):
                if filling:
                    for start, words in pieces(block.words):
                        base = signed((first + start) * multiplier + offset)
                        torch.add(self.ramp[:words], base, out=block.write(start, words))
                    worker.synchronize()
                else:
                    self.compare(index, first, name, multiplier, offset)
                    self.compared[index] = number + 1
                first += block.words
                done = number * steps + (0 if filling else len(self.blocks)) + index + 1
                worker.progress(done / (steps * len(self.passes)), "%s, %d wrong" % (name, self.wrong))

    def compare(self, index: int, first: int, name: str, multiplier: int, offset: int) -> None:
        torch, block = self.torch, self.blocks[index]
        spans = list(pieces(block.words))
        counts = torch.zeros(len(spans), dtype=torch.int64, device=self.worker.device)
        for number, (start, words) in enumerate(spans):
            expected = torch.add(
                self.ramp[:words],
                signed((first + start) * multiplier + offset),
                out=self.expected[:words],
            )
            torch.ne(block.read(start, words), expected, out=self.differs[:words])
            torch.sum(self.differs[:words], 0, out=counts[number])
        if not int(counts.sum().item()):
            return
        for (start, words), count in zip(spans, counts.tolist()):
            if count:
                base = signed((first + start) * multiplier + offset)
                self.look_closer(index, start, words, base, count, name)

    def look_closer(self, index: int, start: int, words: int, base: int, count: int, name: str) -> None:
        """Read a piece again in which `count` words differed, for the bytes and their addresses."""
        torch = self.torch
        expected = torch.add(self.ramp[:words], base, out=self.expected[:words])
        read = self.blocks[index].read(start, words)
        where = torch.ne(read, expected, out=self.differs[:words]).nonzero().flatten()
        if not where.numel():
            self.wrong += count  # at least a byte of each
            self.example(
                "block %d, bytes 0x%x to 0x%x: %d words differed when first read, none when read again (%s)"
                % (index, start * WORD, (start + words) * WORD - 1, count, name)
            )
            return
        bits = torch.bitwise_xor(read[where], expected[where])
        self.wrong += max(count, int((bits.view(torch.uint8) != 0).sum().item()))
        for i in where[:EXAMPLES].tolist():
            self.example(
                "block %d, byte 0x%x: expected 0x%016x, read 0x%016x (%s)"
                % (index, (start + i) * WORD, unsigned(expected[i]), unsigned(read[i]), name)
            )

    def example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)


def pieces(words: int) -> List[Tuple[int, int]]:
    """(start, words) of each piece of a block."""
    step = PIECE_BYTES // WORD
    return [(start, min(step, words - start)) for start in range(0, words, step)]


def signed(number: int) -> int:
    """A number mod 2^64 as torch's int64 holds it."""
    return (number + 2**63) % 2**64 - 2**63


def unsigned(word: Any) -> int:
    return int(word.item()) % 2**64


def out_of_memory(torch: Any, error: Exception) -> bool:
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    # The CPU's allocator raises a plain RuntimeError.
    return isinstance(error, RuntimeError) and "memory" in str(error) and "alloc" in str(error)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
