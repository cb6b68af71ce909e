/* A stand-in for libnvidia-ml.so.1: it answers each call with what a JSON file says.
 *
 * The file is one object of strings, named by the environment variable NODECHECK_FAKE_NVML:
 *
 *     {"nvmlInitWithFlags": "",
 *      "nvmlDeviceGetName 0": "NVIDIA H200",
 *      "nvmlDeviceGetMemoryInfo_v2 0": "150754820096 644939776 150109880320 0",
 *      "nvmlDeviceGetNvLinkState 0 *": "!2",
 *      "* 3": "!15"}
 *
 * A key is the symbol and its input arguments; devices are their indices. "SYMBOL … *" stands for all arguments not
 * named, "* N" for every call on device N. A value is the text or the numbers to hand out, in the order of the struct.
 * "!CODE" returns that nvmlReturn_t, "!hang" never returns, "!deaf" neither returns nor minds SIGTERM, "!crash" is a
 * segmentation fault. What the file does not hold is NVML_ERROR_NOT_SUPPORTED.
 *
 * Structs are written by a layout: v = the caller's version, left alone; I = 32 bits; Q = 64 bits; B = one byte;
 * sN = N characters; xN = N bytes in hexadecimal; D = a device handle. Alignment is C's.
 */
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };
enum { MAX_ANSWERS = 65536, MAX_DEVICES = 256, MAX_KEY = 160 };

struct answer { char *key, *value; };
static struct answer answers[MAX_ANSWERS];
static int answer_count = -1;

/* A handle is the address of one of these, its index the device's. */
typedef char *device_t;
static char devices[MAX_DEVICES];

/* --- the description ---------------------------------------------------------------------------------------------- */

static void give_up(const char *why)
{
    fprintf(stderr, "stand-in for NVML: %s\n", why);
    exit(70);
}

/* The next string of the JSON text, decoded in place; NULL where the object ends. */
static char *next_string(char **at)
{
    char *in = strchr(*at, '"'), *out, *start;
    if (!in) return NULL;
    for (start = out = ++in; *in != '"'; in++) {
        if (!*in) give_up("a string without end");
        if (*in != '\\') { *out++ = *in; continue; }
        switch (*++in) {
        case 'n': *out++ = '\n'; break;
        case 't': *out++ = '\t'; break;
        case 'r': *out++ = '\r'; break;
        case 'u': { char digits[5] = {in[1], in[2], in[3], in[4], 0}; *out++ = (char)strtol(digits, NULL, 16); in += 4; break; }
        default: *out++ = *in;
        }
    }
    *at = in + 1;
    *out = 0;
    return start;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct answer *)a)->key, ((const struct answer *)b)->key);
}

static void load(void)
{
    const char *path = getenv("NODECHECK_FAKE_NVML");
    FILE *file = path ? fopen(path, "rb") : NULL;
    char *text = NULL;
    size_t size = 0;
    if (!file || getdelim(&text, &size, 0, file) < 0) give_up("NODECHECK_FAKE_NVML names no readable file");
    fclose(file);
    answer_count = 0;
    for (char *at = text, *key; (key = next_string(&at));) {
        char *value = next_string(&at);
        if (!value || answer_count == MAX_ANSWERS) give_up("a key without a value, or too many of them");
        answers[answer_count++] = (struct answer){key, value};
    }
    qsort(answers, answer_count, sizeof *answers, by_key);
}

static const char *look_up(char *key)
{
    struct answer wanted = {key, NULL}, *found;
    if (answer_count < 0) load();
    found = bsearch(&wanted, answers, answer_count, sizeof *answers, by_key);
    return found ? found->value : NULL;
}

/* The value for SYMBOL and its arguments, or for the longest beginning of them that is followed by "*". */
static const char *look_up_call(const char *symbol, int count, const long *arguments)
{
    for (int named = count; named >= 0; named--) {
        char key[MAX_KEY];
        int length = snprintf(key, sizeof key, "%s", symbol);
        for (int i = 0; i < named; i++) length += snprintf(key + length, sizeof key - length, " %ld", arguments[i]);
        if (named < count) snprintf(key + length, sizeof key - length, " *");
        const char *value = look_up(key);
        if (value) return value;
    }
    return NULL;
}

/* What "!…" asks for; SUCCESS for a value that is an answer. */
static int fault(const char *value)
{
    if (!value) return NOT_SUPPORTED;
    if (*value != '!') return SUCCESS;
    if (!strcmp(value, "!crash")) raise(SIGSEGV);
    if (!strcmp(value, "!deaf")) signal(SIGTERM, SIG_IGN);
    if (!strcmp(value, "!deaf") || !strcmp(value, "!hang")) for (;;) sleep(3600);
    return atoi(value + 1);
}

/* The fault of the whole device, if it has one, or the handle is none of ours. */
static int device_fault(device_t device)
{
    char key[MAX_KEY];
    if (device < devices || device >= devices + MAX_DEVICES) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "* %d", (int)(device - devices));
    const char *value = look_up(key);
    return value ? fault(value) : SUCCESS;
}

/* --- from text to structs ----------------------------------------------------------------------------------------- */

static char *aligned(char *at, size_t to)
{
    return (char *)(((uintptr_t)at + to - 1) / to * to);
}

/* Write one record; returns where the values of the next one begin. */
static const char *write_record(const char *value, const char *layout, char *out)
{
    while (*layout) {
        char kind = *layout++, word[256];
        int width = (int)strtol(layout, (char **)&layout, 10), used = 0;
        if (kind == 'v') { out = aligned(out, 4) + 4; continue; }
        if (sscanf(value, " %255s%n", word, &used) != 1) give_up("a value that is too short");
        value += used;
        switch (kind) {
        case 'I': out = aligned(out, 4); *(uint32_t *)out = (uint32_t)strtoll(word, NULL, 0); out += 4; break;
        case 'Q': out = aligned(out, 8); *(uint64_t *)out = strtoull(word, NULL, 0); out += 8; break;
        case 'D': *(device_t *)out = devices + atoi(word); out += sizeof(device_t); break;
        case 'B': *out++ = (char)atoi(word); break;
        case 's': memset(out, 0, width); memcpy(out, word, strnlen(word, width - 1)); out += width; break;
        case 'x': for (int i = 0; i < width; i++) { unsigned byte = 0; sscanf(word + 2 * i, "%2x", &byte); *out++ = (char)byte; }
        }
    }
    return value;
}

static int is_blank(const char *value)
{
    return !value[strspn(value, " ")];
}

static int reply(const char *symbol, const char *layout, void *out, int count, ...)
{
    long arguments[4];
    va_list more;
    va_start(more, count);
    for (int i = 0; i < count; i++) arguments[i] = va_arg(more, long);
    va_end(more);
    const char *value = look_up_call(symbol, count, arguments);
    int code = fault(value);
    if (code == SUCCESS && *layout) write_record(value, layout, out);
    return code;
}

static int reply_text(const char *symbol, char *out, unsigned size, int count, long argument)
{
    const char *value = look_up_call(symbol, count, &argument);
    int code = fault(value);
    if (code != SUCCESS) return code;
    if (strlen(value) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

/* Records one after the other, as many as there are; *room is how many fit, and then how many there are. */
static int reply_list(const char *symbol, const char *layout, size_t size, unsigned *room, char *out, int count, long device, long argument)
{
    long arguments[] = {device, argument};
    const char *value = look_up_call(symbol, count, arguments);
    unsigned there = 0;
    char record[256];
    int code = fault(value);
    if (code != SUCCESS) return code;
    for (const char *at = value; !is_blank(at); there++) {
        at = write_record(at, layout, record);
        if (out && there < *room) memcpy(out + there * size, record, size);
    }
    code = there > *room ? INSUFFICIENT_SIZE : SUCCESS;
    *room = there;
    return code;
}

#define CHECKED(device) do { int code_ = device_fault(device); if (code_ != SUCCESS) return code_; } while (0)
#define INDEX(device) ((long)((device) - devices))

/* --- shapes of calls ---------------------------------------------------------------------------------------------- */

#define SYSTEM(symbol, layout) int symbol(void *out) { return reply(#symbol, layout, out, 0); }
#define SYSTEM_TEXT(symbol) int symbol(char *out, unsigned size) { return reply_text(#symbol, out, size, 0, 0); }
#define BY_NUMBER(symbol, layout) int symbol(unsigned number, void *out) { return reply(#symbol, layout, out, 1, (long)number); }
#define DEVICE(symbol, layout) \
    int symbol(device_t device, void *out) { CHECKED(device); return reply(#symbol, layout, out, 1, INDEX(device)); }
#define DEVICE_1(symbol, layout) \
    int symbol(device_t device, int a, void *out) { CHECKED(device); return reply(#symbol, layout, out, 2, INDEX(device), (long)a); }
#define DEVICE_2(symbol, layout) \
    int symbol(device_t device, int a, int b, void *out) \
    { CHECKED(device); return reply(#symbol, layout, out, 3, INDEX(device), (long)a, (long)b); }
#define DEVICE_3(symbol, layout) \
    int symbol(device_t device, int a, int b, int c, void *out) \
    { CHECKED(device); return reply(#symbol, layout, out, 4, INDEX(device), (long)a, (long)b, (long)c); }
#define DEVICE_TEXT(symbol) \
    int symbol(device_t device, char *out, unsigned size) { CHECKED(device); return reply_text(#symbol, out, size, 1, INDEX(device)); }
#define TWO_NUMBERS(symbol) \
    int symbol(device_t device, uint32_t *a, uint32_t *b) \
    { uint32_t both[2]; CHECKED(device); int code = reply(#symbol, "II", both, 1, INDEX(device)); \
      if (code == SUCCESS) { *a = both[0]; *b = both[1]; } return code; }
#define PROCESSES(symbol) \
    int symbol(device_t device, unsigned *room, char *out) \
    { CHECKED(device); return reply_list(#symbol, "IQII", 24, room, out, 1, INDEX(device), 0); }
/* One struct for question and answer: the argument is the number after the version. */
#define DEVICE_ASKED(symbol, layout) \
    int symbol(device_t device, uint32_t *out) { CHECKED(device); return reply(#symbol, layout, out, 2, INDEX(device), (long)out[1]); }

/* --- the library -------------------------------------------------------------------------------------------------- */

int nvmlInitWithFlags(unsigned flags) { (void)flags; return reply("nvmlInitWithFlags", "", NULL, 0); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code)
{
    static char words[64];
    snprintf(words, sizeof words, "error %d of the stand-in", code);
    return words;
}

SYSTEM_TEXT(nvmlSystemGetDriverVersion)
SYSTEM_TEXT(nvmlSystemGetNVMLVersion)
SYSTEM(nvmlSystemGetCudaDriverVersion, "I")
SYSTEM(nvmlSystemGetCudaDriverVersion_v2, "I")
SYSTEM(nvmlSystemGetNvlinkBwMode, "I")
SYSTEM(nvmlSystemGetConfComputeState, "III")
SYSTEM(nvmlSystemGetConfComputeSettings, "vIIII")
SYSTEM(nvmlSystemGetConfComputeGpusReadyState, "I")
int nvmlSystemGetDriverBranch(void *out, unsigned size) { (void)size; return reply("nvmlSystemGetDriverBranch", "vs80", out, 0); }
int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) { return reply_text("nvmlSystemGetProcessName", out, size, 1, pid); }
SYSTEM(nvmlDeviceGetCount_v2, "I")
SYSTEM(nvmlGetExcludedDeviceCount, "I")
BY_NUMBER(nvmlGetExcludedDeviceInfoByIndex, "s16IIIIIs32s80")
BY_NUMBER(nvmlDeviceGetHandleByIndex_v2, "D")

DEVICE_TEXT(nvmlDeviceGetName)
DEVICE_TEXT(nvmlDeviceGetUUID)
DEVICE_TEXT(nvmlDeviceGetSerial)
DEVICE_TEXT(nvmlDeviceGetBoardPartNumber)
DEVICE_TEXT(nvmlDeviceGetVbiosVersion)
DEVICE_TEXT(nvmlDeviceGetInforomImageVersion)
int nvmlDeviceGetGspFirmwareVersion(device_t device, char *out)
{
    CHECKED(device);
    return reply_text("nvmlDeviceGetGspFirmwareVersion", out, 64, 1, INDEX(device));
}
int nvmlDeviceValidateInforom(device_t device) { CHECKED(device); return reply("nvmlDeviceValidateInforom", "", NULL, 1, INDEX(device)); }
DEVICE(nvmlDeviceGetIndex, "I")
DEVICE(nvmlDeviceGetPciInfo_v3, "s16IIIIIs32")
DEVICE(nvmlDeviceGetMinorNumber, "I")
DEVICE(nvmlDeviceGetModuleId, "I")
DEVICE(nvmlDeviceGetBoardId, "I")
DEVICE(nvmlDeviceGetInforomConfigurationChecksum, "I")
DEVICE(nvmlDeviceGetArchitecture, "I")
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability)
DEVICE(nvmlDeviceGetNumGpuCores, "I")
DEVICE(nvmlDeviceGetMemoryBusWidth, "I")
DEVICE(nvmlDeviceGetVirtualizationMode, "I")
DEVICE(nvmlDeviceGetAddressingMode, "vI")
DEVICE(nvmlDeviceGetNumaNodeId, "I")

DEVICE(nvmlDeviceGetMemoryInfo, "QQQ")
DEVICE(nvmlDeviceGetMemoryInfo_v2, "vQQQQ")
DEVICE(nvmlDeviceGetBAR1MemoryInfo, "QQQ")
DEVICE(nvmlDeviceGetUtilizationRates, "II")

DEVICE(nvmlDeviceGetCurrPcieLinkGeneration, "I")
DEVICE(nvmlDeviceGetCurrPcieLinkWidth, "I")
DEVICE(nvmlDeviceGetMaxPcieLinkGeneration, "I")
DEVICE(nvmlDeviceGetMaxPcieLinkWidth, "I")
DEVICE(nvmlDeviceGetGpuMaxPcieLinkGeneration, "I")
DEVICE(nvmlDeviceGetPcieLinkMaxSpeed, "I")
DEVICE(nvmlDeviceGetPcieSpeed, "I")
DEVICE(nvmlDeviceGetPcieReplayCounter, "I")

DEVICE_1(nvmlDeviceGetNvLinkState, "I")
DEVICE_1(nvmlDeviceGetNvLinkVersion, "I")
DEVICE_1(nvmlDeviceGetNvLinkRemotePciInfo_v2, "s16IIIIIs32")
DEVICE_1(nvmlDeviceGetNvLinkRemoteDeviceType, "I")
DEVICE_2(nvmlDeviceGetNvLinkCapability, "I")
DEVICE_2(nvmlDeviceGetNvLinkErrorCounter, "Q")

/* Entries of 40 bytes: field, scope, timestamp, latency, type of the value, code, value. "TYPE NUMBER" is the answer. */
int nvmlDeviceGetFieldValues(device_t device, int count, char *entries)
{
    CHECKED(device);
    for (char *entry = entries; entry < entries + 40 * count; entry += 40) {
        uint32_t *numbers = (uint32_t *)entry;
        long arguments[] = {INDEX(device), numbers[0], numbers[1]};
        const char *value = look_up_call("nvmlDeviceGetFieldValues", 3, arguments);
        numbers[7] = fault(value);
        if (numbers[7] == SUCCESS) { write_record(value, "I", entry + 24); write_record(strchr(value, ' '), "Q", entry + 32); }
    }
    return SUCCESS;
}

#define PAIR(symbol, layout, parameters, count, ...) \
    int symbol(device_t device, device_t other, parameters) \
    { CHECKED(device); CHECKED(other); return reply(#symbol, layout, out, count, INDEX(device), INDEX(other), ##__VA_ARGS__); }
#define AND ,
PAIR(nvmlDeviceGetTopologyCommonAncestor, "I", void *out, 2)
PAIR(nvmlDeviceOnSameBoard, "I", void *out, 2)
PAIR(nvmlDeviceGetP2PStatus, "I", int kind AND void *out, 3, (long)kind)

static int reply_set(const char *symbol, device_t device, unsigned words, uint64_t *set)
{
    unsigned room = words;
    CHECKED(device);
    memset(set, 0, words * sizeof *set);
    return reply_list(symbol, "Q", sizeof *set, &room, (char *)set, 1, INDEX(device), 0);
}
int nvmlDeviceGetCpuAffinity(device_t device, unsigned words, uint64_t *set) { return reply_set("nvmlDeviceGetCpuAffinity", device, words, set); }
int nvmlDeviceGetCpuAffinityWithinScope(device_t device, unsigned words, uint64_t *set, unsigned scope)
{
    (void)scope;
    return reply_set("nvmlDeviceGetCpuAffinityWithinScope", device, words, set);
}
int nvmlDeviceGetMemoryAffinity(device_t device, unsigned words, uint64_t *set, unsigned scope)
{
    (void)scope;
    return reply_set("nvmlDeviceGetMemoryAffinity", device, words, set);
}

TWO_NUMBERS(nvmlDeviceGetEccMode)
DEVICE_2(nvmlDeviceGetTotalEccErrors, "Q")
DEVICE_3(nvmlDeviceGetMemoryErrorCounter, "Q")
DEVICE(nvmlDeviceGetSramEccErrorStatus, "vQQQQQQQQQQQI")
DEVICE(nvmlDeviceGetRetiredPagesPendingStatus, "I")
int nvmlDeviceGetRetiredPages_v2(device_t device, int cause, unsigned *room, uint64_t *pages, uint64_t *times)
{
    uint64_t both[128];
    unsigned wanted = *room, there = 64;
    CHECKED(device);
    int code = reply_list("nvmlDeviceGetRetiredPages_v2", "QQ", 16, &there, (char *)both, 2, INDEX(device), cause);
    if (code != SUCCESS) return code;
    *room = there;
    if (!pages || there > wanted) return there ? INSUFFICIENT_SIZE : SUCCESS;
    for (unsigned i = 0; i < there; i++) { pages[i] = both[2 * i]; times[i] = both[2 * i + 1]; }
    return SUCCESS;
}
int nvmlDeviceGetRemappedRows(device_t device, uint32_t *corrected, uint32_t *uncorrected, uint32_t *pending, uint32_t *failed)
{
    uint32_t all[4];
    CHECKED(device);
    int code = reply("nvmlDeviceGetRemappedRows", "IIII", all, 1, INDEX(device));
    if (code == SUCCESS) { *corrected = all[0]; *uncorrected = all[1]; *pending = all[2]; *failed = all[3]; }
    return code;
}
DEVICE(nvmlDeviceGetRemappedRows_v2, "vIIIII")
DEVICE(nvmlDeviceGetRowRemapperHistogram, "IIIII")
DEVICE(nvmlDeviceGetRepairStatus, "vII")
DEVICE(nvmlDeviceGetUnrepairableMemoryFlag_v1, "vI")

DEVICE_1(nvmlDeviceGetClockInfo, "I")
DEVICE_1(nvmlDeviceGetMaxClockInfo, "I")
DEVICE_1(nvmlDeviceGetApplicationsClock, "I")
DEVICE_1(nvmlDeviceGetDefaultApplicationsClock, "I")
DEVICE(nvmlDeviceGetCurrentClocksEventReasons, "Q")
DEVICE(nvmlDeviceGetCurrentClocksThrottleReasons, "Q")
DEVICE(nvmlDeviceGetSupportedClocksEventReasons, "Q")
DEVICE_1(nvmlDeviceGetViolationStatus, "QQ")
DEVICE(nvmlDeviceGetPerformanceState, "I")

DEVICE(nvmlDeviceGetPowerManagementLimit, "I")
DEVICE(nvmlDeviceGetPowerManagementDefaultLimit, "I")
DEVICE(nvmlDeviceGetEnforcedPowerLimit, "I")
TWO_NUMBERS(nvmlDeviceGetPowerManagementLimitConstraints)
DEVICE(nvmlDeviceGetPowerUsage, "I")
DEVICE(nvmlDeviceGetTotalEnergyConsumption, "Q")

DEVICE_1(nvmlDeviceGetTemperature, "I")
DEVICE_ASKED(nvmlDeviceGetTemperatureV, "vvI")
DEVICE_1(nvmlDeviceGetTemperatureThreshold, "I")
DEVICE(nvmlDeviceGetMarginTemperature, "vI")

TWO_NUMBERS(nvmlDeviceGetMigMode)
DEVICE(nvmlDeviceGetMaxMigDeviceCount, "I")
DEVICE_1(nvmlDeviceGetMigDeviceHandleByIndex, "D")
DEVICE(nvmlDeviceGetComputeMode, "I")
DEVICE(nvmlDeviceGetPersistenceMode, "I")

/* The struct grew: the caller's version says which it has, and is the last argument of the key. */
int nvmlDeviceGetGpuFabricInfoV(device_t device, uint32_t *out)
{
    CHECKED(device);
    return reply("nvmlDeviceGetGpuFabricInfoV", *out >> 24 == 2 ? "vx16IIII" : "vx16IIIIB", out, 2, INDEX(device), (long)(*out >> 24));
}
DEVICE(nvmlDeviceGetGpuFabricInfo, "x16III")

PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)
