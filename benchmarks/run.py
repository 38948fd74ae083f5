"""Every benchmark that `make bench` runs, one after another; each can be run by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run all; the first that fails ends it."""
    for script in [*sorted(HERE.glob("*.py")), *sorted((HERE / "centre").glob("*.py"))]:
        if script.name == Path(__file__).name:
            continue
        print(f"\n## {script.stem}\n", flush=True)
        done = subprocess.run([sys.executable, str(script)], check=False, timeout=900)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
