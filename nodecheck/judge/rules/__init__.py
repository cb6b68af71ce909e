"""Every rule, a module a subject. Importing this package registers them all, in the order of the report."""

# isort: off
from nodecheck.judge.rules import cards  # noqa: F401
from nodecheck.judge.rules import identity  # noqa: F401
from nodecheck.judge.rules import condition  # noqa: F401
from nodecheck.judge.rules import health  # noqa: F401
from nodecheck.judge.rules import topology  # noqa: F401
from nodecheck.judge.rules import host  # noqa: F401
from nodecheck.judge.rules import stack  # noqa: F401
from nodecheck.judge.rules import driver  # noqa: F401
from nodecheck.judge.rules import extensions  # noqa: F401
from nodecheck.judge.rules import environment  # noqa: F401
from nodecheck.judge.rules import kernel_log  # noqa: F401
from nodecheck.judge.rules import diagnoses  # noqa: F401
from nodecheck.judge.rules import measurements  # noqa: F401
from nodecheck.judge.rules import operators  # noqa: F401
from nodecheck.judge.rules import performance  # noqa: F401
from nodecheck.judge.rules import transports  # noqa: F401
