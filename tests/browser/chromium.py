"""Pages in headless Chromium."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')
# loads the pages one after the other into a frame, and replaces itself by the results
WRAPPER = """
<iframe style="width: {size[0]}px; height: {size[1]}px; border: 0"></iframe>
<script>
(async () => {{
  const frame = document.querySelector('iframe'), results = [];
  for (const page of {pages}) {{
    await new Promise((done) => {{ frame.onload = done; frame.src = page; }});
    results.push(await frame.contentWindow.eval({script}));
  }}
  document.body.textContent = 'RESULTS' + JSON.stringify(results);
}})();
</script>
"""


def find_browser() -> str:
    """The program in the variable CHROME, or one of NAMES."""
    names = [os.environ['CHROME']] if os.environ.get('CHROME') else NAMES
    found = next(filter(None, map(shutil.which, names)), None)
    return found or sys.exit(f'none of the programs {", ".join(names)} was found')


def look(pages: Sequence[Path], script: str, size: tuple[int, int]) -> list[Any]:
    """What a script returns in pages of this size, which must print nothing to the console."""
    urls = [page.absolute().as_uri() for page in pages]
    with TemporaryDirectory() as folder:
        wrapper = Path(folder, 'wrapper.html')
        wrapper.write_text(
            WRAPPER.format(size=size, pages=json.dumps(urls), script=json.dumps(script))
        )
        flags = [
            *('--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars'),
            *('--allow-file-access-from-files', '--enable-logging=stderr'),
            *('--virtual-time-budget=600000', f'--user-data-dir={folder}/profile', '--dump-dom'),
        ]
        command = [find_browser(), *flags, wrapper.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    printed = [line for line in done.stderr.splitlines() if 'CONSOLE' in line]
    assert printed == []
    results = re.search(r'RESULTS(.*)</body>', done.stdout)
    assert results, done.stderr[-2000:]
    return json.loads(unescape(results[1]))


if __name__ == '__main__':
    print(find_browser())
