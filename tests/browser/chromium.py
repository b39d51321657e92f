"""Pages in headless Chromium."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')
# loads the pages one after the other into a frame, and prints the results to the console
WRAPPER = """
<iframe style="width: {size[0]}px; height: {size[1]}px; border: 0"></iframe>
<script>
(async () => {{
  const frame = document.querySelector('iframe'), results = [];
  for (const page of {pages}) {{
    await new Promise((done) => {{ frame.onload = done; frame.src = page; }});
    const {{ document, performance }} = frame.contentWindow;
    results.push(await {script});
  }}
  return results;
}})().then(
  (results) => console.log(`RESULTS=${{encodeURIComponent(JSON.stringify(results))}}=`),
  (error) => console.log(`ERROR ${{error.stack}}`),
);
</script>
"""


def find_browser() -> str:
    """The program in the variable CHROME, or one of NAMES."""
    names = [os.environ['CHROME']] if os.environ.get('CHROME') else NAMES
    found = next(filter(None, map(shutil.which, names)), None)
    return found or sys.exit(f'none of the programs {", ".join(names)} was found')


def look(pages: Sequence[Path], script: str, size: tuple[int, int]) -> list[Any]:
    """The values of a JavaScript expression in pages, which must print nothing to the console."""
    urls = json.dumps([page.absolute().as_uri() for page in pages])
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        wrapper = Path(folder, 'wrapper.html')
        wrapper.write_text(WRAPPER.format(size=size, pages=urls, script=script))
        flags = [
            *('--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars'),
            *('--allow-file-access-from-files', '--enable-logging=stderr'),
            f'--user-data-dir={folder}/profile',
        ]
        command = ['timeout', '300', find_browser(), *flags, wrapper.as_uri()]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
            printed = next((line for line in browser.stderr if 'CONSOLE' in line), 'nothing')
            browser.terminate()
    results = re.search(r'RESULTS=(.*)=', printed)
    assert results, printed
    return json.loads(unquote(results[1]))


if __name__ == '__main__':
    print(find_browser())
