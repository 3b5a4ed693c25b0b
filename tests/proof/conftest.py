import sys
from pathlib import Path

# Its helper module lies beside the tests, which are no package.
sys.path.insert(0, str(Path(__file__).parent))
