'use strict';

// --- Light or dark: as the system has it, until the button is pressed ---------------------------

const root = document.documentElement;
const themeButton = document.getElementById('theme');
const systemIsDark = matchMedia('(prefers-color-scheme: dark)');

function isDark() {
  return root.dataset.theme ? root.dataset.theme === 'dark' : systemIsDark.matches;
}

function nameTheme() {
  themeButton.textContent = isDark() ? 'Light' : 'Dark';
}

themeButton.addEventListener('click', () => {
  root.dataset.theme = isDark() ? 'light' : 'dark';
  nameTheme();
});
systemIsDark.addEventListener('change', nameTheme);
themeButton.hidden = false;
nameTheme();

// --- Tables: a click on a heading sorts, another one turns the order round -----------------------

function sortBy(heading) {
  const table = heading.closest('table');
  const column = heading.cellIndex;
  const isNumber = heading.classList.contains('number');
  // numbers are most often asked for from the top, names from A
  const first = isNumber ? 'descending' : 'ascending';
  const second = isNumber ? 'ascending' : 'descending';
  const order = heading.ariaSort === first ? second : first;
  const sign = order === 'ascending' ? 1 : -1;
  const rows = [...table.tBodies[0].rows].map((row) => [row.cells[column].dataset.value, row]);
  rows.sort(([a], [b]) => {
    if (a === '' || b === '') return (a === '') - (b === ''); // nothing is last, always
    return sign * (isNumber ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  });
  for (const other of heading.parentNode.cells) other.ariaSort = 'none';
  heading.ariaSort = order;
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const button of document.querySelectorAll('thead button')) {
  button.addEventListener('click', () => sortBy(button.parentNode));
}

// --- Charts: the values where the pointer is ------------------------------------------------------

function nearest(points, x) {
  return points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}

for (const chart of document.querySelectorAll('.chart')) {
  const series = JSON.parse(chart.dataset.series);
  const [low, high, start, end, width] = JSON.parse(chart.dataset.scale);
  const svg = chart.querySelector('svg');
  const cursor = chart.querySelector('.cursor');
  const readout = chart.querySelector('.readout');
  readout.textContent = 'Point or touch for values.';
  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * width;
    const wanted = low + ((place - start) / (end - start)) * (high - low);
    const found = series.map(({ points }) => nearest(points, wanted));
    const step = nearest(found, wanted)[0];
    const x = start + ((step - low) / (high - low)) * (end - start);
    cursor.setAttribute('x1', x);
    cursor.setAttribute('x2', x);
    cursor.style.visibility = 'visible';
    const values = series.map(({ name }, i) => `${Number(found[i][1].toPrecision(4))} (${name})`);
    readout.textContent = `iteration ${Math.round(step)}: ${values.join(', ')}`;
  };
  svg.addEventListener('pointermove', show);
  svg.addEventListener('pointerdown', show);
}

// --- Pictures: a click shows one in its own size ---------------------------------------------------

const dialog = document.getElementById('enlarged');
const enlarged = dialog.querySelector('img');

for (const picture of document.querySelectorAll('.exhibit img')) {
  picture.tabIndex = 0;
  picture.setAttribute('role', 'button');
  const enlarge = () => {
    enlarged.src = picture.src;
    enlarged.alt = picture.alt;
    dialog.showModal();
  };
  picture.addEventListener('click', enlarge);
  picture.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      enlarge();
    }
  });
}
dialog.addEventListener('click', () => dialog.close());
