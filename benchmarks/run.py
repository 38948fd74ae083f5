"""Every benchmark that `make bench` runs, one after another; each can be run by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# These say themselves whether they fall short of what is asked.
CENTRE = "centre"


def main() -> int:
    """Run all, whoever fails; 1 if one did."""
    failed = []
    for script in [*sorted(HERE.glob("*.py")), *sorted((HERE / CENTRE).glob("*.py"))]:
        if script.name == Path(__file__).name:
            continue
        print(f"\n## {script.stem}\n", flush=True)
        asked = ["--asked"] if script.parent.name == CENTRE else []
        if subprocess.run([sys.executable, str(script), *asked], check=False, timeout=900).returncode:
            failed.append(script.stem)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
