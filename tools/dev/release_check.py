"""Checks what would be published, before it is (`make release-check`).

Compares the versions in CITATION.cff and CHANGELOG.md with that of the package. Builds a source
distribution and from it a wheel, checks their metadata and CITATION.cff, and installs the wheel
beside the packages of this environment, but not its mmbixt, which is a link to the checkout. With
it, in an empty folder, runs what README.md shows and needs no data set.
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name('uv')
# settings that make a line of the README short
FEW = ['train_cfg.max_iters=2', 'train_cfg.val_interval=2', 'val_dataloader.dataset.indices=2']


def run(*command: object, cwd: Path = ROOT) -> str:
    """The output of a command, which must succeed."""
    print('runs', *command, flush=True)
    environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'UV_PYTHON': sys.executable}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f'{done.stdout[-4000:]}\nfailed: {command}')
    return done.stdout


def check_version() -> None:
    version = run_path(str(ROOT / 'mmbixt/version.py'))['__version__']
    for name, line in (
        ('CITATION.cff', f'version: {version}'),
        ('CHANGELOG.md', f'## [{version}]'),
    ):
        if line not in (ROOT / name).read_text():
            sys.exit(f'{name} has no line with {line}')


def install(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """The Python of a new environment, and the package that it imports."""
    run(UV, 'venv', '-q', folder)
    python = folder / 'bin/python'
    (site,) = folder.glob('lib/*/site-packages')
    # Lines of .pth files in that folder are not followed, so the link to the checkout is not.
    Path(site, 'dependencies.pth').write_text(sysconfig.get_path('purelib') + '\n')
    run(UV, 'pip', 'install', '-q', '--python', python, '--no-deps', wheel)
    code = 'import mmbixt.backbones, mmbixt; print(mmbixt.__path__[0])'
    package = Path(run(python, '-W', 'ignore', '-c', code, cwd=folder).strip())
    assert package.is_relative_to(folder), package
    return python, package


def run_readme(python: Path, package: Path, folder: Path) -> None:
    """Run the lines of README.md for generated scenes, and those on what they wrote."""
    folder.mkdir()
    blocks = re.findall(r'```bash\n(.*?)```', (ROOT / 'README.md').read_text(), re.DOTALL)
    lines = [line.partition('#')[0].split() for line in ''.join(blocks).splitlines()]
    tools = [line[1:] for line in lines if line[:1] == ['python']]
    on_scenes = [line for line in tools if '--sample' in line]
    assert on_scenes
    for tool, *words in on_scenes:
        run(python, package / '.mim' / tool, *words, '--cfg-options', *FEW, cwd=folder)
    for tool, *words in tools:
        if any(folder.joinpath(word).exists() for word in words):
            run(python, package / '.mim' / tool, *words, cwd=folder)


def main() -> None:
    check_version()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(UV, 'build', '-q', '--out-dir', folder / 'dist')
        run(UV, 'tool', 'run', 'twine@7.0.0', 'check', '--strict', *folder.glob('dist/mmbixt-*'))
        run(UV, 'tool', 'run', 'cffconvert@2.0.0', '--validate')
        python, package = install(*folder.glob('dist/*.whl'), folder / 'environment')
        run_readme(python, package, folder / 'empty')
    print('release-check: passed')


if __name__ == '__main__':
    main()
