"""Checks what would be published, before it is (`make release-check`).

Builds a source distribution and from it a wheel, checks their metadata and CITATION.cff, and
installs each of the two files in a clean environment. There, in an empty folder, it runs what
README.md shows, except what needs a checkout, a data set or downloads, which is listed. A clean
environment uses the packages of the environment that runs this (`make setup`), which saves minutes,
but not its mmbixt, which is a link to the checkout.
"""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / 'README.md'
TOOLS = 'build==1.6.1', 'twine==7.0.0', 'cffconvert==2.0.0'
# settings that make a line of the README short
FEW = ['train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'val_dataloader.dataset.indices=2']
BUILD_MODEL = """
import sys, torch
from mmengine import Config
from mmengine.registry import MODELS, init_default_scope
cfg = Config.fromstring(sys.argv[1], '.py')
init_default_scope(sys.argv[2])
with torch.device('meta'):
    MODELS.build(cfg.model)
"""


def run(*command: object, cwd: Path = ROOT, **variables: str) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, 'OMP_NUM_THREADS': '1', 'NO_COLOR': '1', **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f'{done.stdout[-4000:]}\nfailed: {" ".join(map(str, command))[:400]}')
    return done.stdout


def build(folder: Path) -> list[Path]:
    """The source distribution and the wheel made from it, with checked metadata."""
    tools = Path(sys.prefix, 'release')
    pip = sys.executable, '-m', 'pip', 'install', '-q', '--disable-pip-version-check'
    run(*pip, '--upgrade', '--target', tools, *TOOLS)
    run(sys.executable, '-m', 'build', '--outdir', folder, PYTHONPATH=str(tools))
    files = sorted(folder.iterdir(), reverse=True)  # the wheel last
    print(run(sys.executable, '-m', 'twine', 'check', '--strict', *files, PYTHONPATH=str(tools)))
    validate = 'from cffconvert.cli.cli import cli; cli()'
    run(sys.executable, '-c', validate, '--validate', PYTHONPATH=str(tools))
    return files


def clean_environment(folder: Path) -> Path:
    """The Python of an environment with our dependencies, but without mmbixt."""
    venv.create(folder, with_pip=True)
    python = folder / 'bin/python'
    site = run(python, '-c', 'import sysconfig; print(sysconfig.get_path("purelib"))').strip()
    # Lines of .pth files in that folder are not followed, so the link to the checkout is not.
    Path(site, 'dependencies.pth').write_text(sysconfig.get_path('purelib') + '\n')
    code = 'from importlib.util import find_spec; print(find_spec("mmbixt"))'
    assert run(python, '-c', code, cwd=folder) == 'None\n'
    return python


def readme(mim: Path, folder: Path) -> Iterator[tuple[str, list[str] | None]]:
    """Python blocks and shell lines of README.md, each with arguments of Python that run it."""
    for kind, text in re.findall(r'```(python|bash)\n(.*?)```', README.read_text(), re.DOTALL):
        if kind == 'python':
            base = re.match(r"_base_ = '(mm\w+)::", text)
            plain = ['-c', text] if text.startswith('import torch') else None
            yield text, ['-c', BUILD_MODEL, text, base[1]] if base else plain
            continue
        for line in text.splitlines():
            command, *words = line.partition('#')[0].split() or ['']
            tool = [str(mim / word) if mim.joinpath(word).exists() else word for word in words]
            if command == 'python' and '--sample' in words:
                yield line, [*tool, '--cfg-options', *FEW]
            elif command == 'python' and any(folder.joinpath(word).exists() for word in words[1:]):
                yield line, tool  # on what an earlier line wrote
            else:
                yield line, None


def install(file: Path, folder: Path) -> tuple[Path, Path]:
    """A clean environment with a distribution: its Python, and the installed package."""
    python = clean_environment(folder / 'environment')
    run(python, '-m', 'pip', 'install', '-q', '--disable-pip-version-check', file)
    code = 'import mmbixt.backbones, mmbixt; print(mmbixt.__path__[0])'
    package = Path(run(python, '-W', 'ignore', '-c', code, cwd=folder).strip())
    assert package.is_relative_to(folder), package
    return python, package


def run_readme(python: Path, package: Path, folder: Path) -> None:
    """Run what README.md shows, in an empty folder."""
    count = 0
    folder.mkdir()
    for text, arguments in readme(package / '.mim', folder):
        print('runs' if arguments else 'not run', text.partition('\n')[0], sep='\t', flush=True)
        if arguments:
            run(python, *arguments, cwd=folder)
            count += 1
    assert count, 'nothing of the README could be run'


def main() -> None:
    classifiers = distribution('mmbixt').metadata.get_all('Classifier')
    claimed = [line.split()[-1] for line in classifiers if re.search(r':: 3\.\d+$', line)]
    this = f'{sys.version_info[0]}.{sys.version_info[1]}'
    if claimed != [this]:
        sys.exit(f'setup.py claims Python {", ".join(claimed)}, but this is {this}')
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for file in build(folder / 'dist'):
            python, package = install(file, folder / file.suffix)
            print(f'{file.name} is installed, with Python {this}', flush=True)
        run_readme(python, package, folder / 'empty')
    print('release-check: passed')


if __name__ == '__main__':
    main()
