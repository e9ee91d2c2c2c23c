"""Whether a module can be used by several threads right after its import: python -m tests.support.first_use MODULE CALL

Each round imports the module again, so that its types are new, and calls in six threads at once. A library that
prepares a type at its first use, without a lock, crashes the process. CALL is an expression in the module's names.
"""

from __future__ import annotations

import importlib
import sys
from threading import Barrier, Thread

ROUNDS = 300
THREADS = 6


def main(name: str, call: str) -> None:
    """Repeat the first call in many threads."""
    sys.setswitchinterval(1e-6)
    module = importlib.import_module(name)
    code = compile(call, "call", "eval")
    for _ in range(ROUNDS):
        module = importlib.reload(module)
        barrier = Barrier(THREADS)

        def work(names: dict[str, object], barrier: Barrier) -> None:
            barrier.wait()
            eval(code, names)

        threads = [Thread(target=work, args=(dict(vars(module)), barrier)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
