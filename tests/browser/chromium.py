"""Headless Chromium, controlled by the DevTools protocol over a socket."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome')
HOW_TO_GET = (
    'Chromium was not found. Install it (Debian, Ubuntu: sudo apt-get install chromium), or give '
    'the path of Chrome or Chromium: make test-browser CHROME=/path/to/chrome'
)
TIMEOUT = 120  # seconds for a response


class NoBrowserError(RuntimeError):
    """There is no Chromium, or it does not start."""


def find_browser() -> str:
    """The program in the variable CHROME, or one of NAMES."""
    wanted = os.environ.get('CHROME')
    found = shutil.which(wanted) if wanted else next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        raise NoBrowserError(f'CHROME={wanted} is not a program.' if wanted else HOW_TO_GET)
    return found


class Page:
    """A tab, with its errors and its network requests; ``profile`` is an empty folder."""

    def __init__(self, profile: Path) -> None:
        self.errors, self.requests = [], []
        self._printed, self._events, self._session = profile / 'stderr.txt', [], {}
        self._count, self._rest = 0, b''
        # the browser reads commands from file descriptor 3 and writes responses to 4
        self._socket, end = socket.socketpair()
        self._socket.settimeout(TIMEOUT)
        options = [
            *('--headless=new', '--disable-gpu', '--no-first-run', '--remote-debugging-pipe'),
            *('--hide-scrollbars', '--disable-dev-shm-usage', '--disable-background-networking'),
            f'--user-data-dir={profile}',
        ]
        if os.geteuid() == 0:
            options.append('--no-sandbox')
        self._process = subprocess.Popen(
            [find_browser(), *options],
            pass_fds=(3, 4),
            preexec_fn=lambda: [os.dup2(end.fileno(), number) for number in (3, 4)],
            stdout=subprocess.DEVNULL,
            stderr=self._printed.open('w'),
        )
        end.close()
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        attached = self.call('Target.attachToTarget', targetId=target, flatten=True)
        self._session = dict(sessionId=attached['sessionId'])
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(f'{domain}.enable')

    def call(self, method: str, **parameters: Any) -> dict:
        """Send a command of the protocol; returns the result."""
        self._count += 1
        number = self._count
        message = dict(id=number, method=method, params=parameters, **self._session)
        self._socket.sendall(json.dumps(message).encode() + b'\0')
        while (response := self._receive()).get('id') != number:
            self._record(response)
        if 'error' in response:
            raise RuntimeError(f'{method}: {response["error"]["message"]}')
        return response['result']

    def _receive(self) -> dict:
        while b'\0' not in self._rest:
            part = self._socket.recv(1 << 20)
            if not part:
                text = self._printed.read_text(errors='replace')[-1000:]
                raise NoBrowserError(f'{find_browser()} ended: {text}')
            self._rest += part
        message, _, self._rest = self._rest.partition(b'\0')
        return json.loads(message)

    def _record(self, event: dict) -> None:
        self._events.append(event)
        name, about = event['method'], event['params']
        if name == 'Runtime.exceptionThrown':
            self.errors.append(str(about['exceptionDetails']))
        elif name == 'Runtime.consoleAPICalled' and about['type'] in ('error', 'warning', 'assert'):
            self.errors.append(str(about['args']))
        elif name == 'Log.entryAdded' and about['entry']['level'] in ('error', 'warning'):
            self.errors.append(about['entry']['text'])
        elif name == 'Network.requestWillBeSent':
            self.requests.append(about['request']['url'])

    def open(self, file: Path) -> None:
        """Load a file and wait until it is complete."""
        self._events.clear()
        self.call('Page.navigate', url=file.absolute().as_uri())
        while not any(event['method'] == 'Page.loadEventFired' for event in self._events):
            self._record(self._receive())

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        size = dict(width=width, height=height, deviceScaleFactor=1 + phone, mobile=phone)
        self.call('Emulation.setDeviceMetricsOverride', **size)

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        result = self.call(
            'Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True
        )
        if 'exceptionDetails' in result:
            raise RuntimeError(f'{expression}: {result["exceptionDetails"]}')
        return result['result'].get('value')

    def click(self, selector: str) -> None:
        """Scroll to an element and click on its centre."""
        place = self.run(
            f'(() => {{ const found = document.querySelector({json.dumps(selector)});'
            'found.scrollIntoView({block: "center", inline: "center"});'
            'const box = found.getBoundingClientRect();'
            'return {x: box.x + box.width / 2, y: box.y + box.height / 2} })()'
        )
        for kind in ('mousePressed', 'mouseReleased'):
            self.call('Input.dispatchMouseEvent', type=kind, button='left', clickCount=1, **place)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()


if __name__ == '__main__':
    try:
        print(find_browser())
    except NoBrowserError as error:
        sys.exit(str(error))
