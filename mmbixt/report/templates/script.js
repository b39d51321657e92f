'use strict';

// Light or dark: as the system has it, until the button is pressed.
const { style } = document.documentElement;
const themeButton = document.getElementById('theme');
themeButton.hidden = false;
themeButton.addEventListener('click', () => {
  const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
  const now = style.colorScheme || (isDark ? 'dark' : 'light');
  style.colorScheme = now === 'dark' ? 'light' : 'dark';
});

// Tables: a click on a heading sorts, numbers from the top, names from A; another one reverses.
for (const heading of document.querySelectorAll('thead th')) {
  heading.firstElementChild.addEventListener('click', () => {
    const isNumber = heading.classList.contains('number');
    const [first, second] = isNumber ? ['descending', 'ascending'] : ['ascending', 'descending'];
    const order = heading.ariaSort === first ? second : first;
    const sign = order === 'ascending' ? 1 : -1;
    const value = (row) => row.cells[heading.cellIndex].dataset.value;
    const body = heading.closest('table').tBodies[0];
    body.append(...[...body.rows].sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === '' || b === '') return (a === '') - (b === ''); // without a value: always last
      return sign * (isNumber ? a - b : a.localeCompare(b, undefined, { numeric: true }));
    }));
    for (const other of heading.parentNode.cells) other.ariaSort = 'none';
    heading.ariaSort = order;
  });
}

// Curves: the values at the pointer.
const nearest = (points, step) => points.reduce((best, point) =>
  Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best);
for (const chart of document.querySelectorAll('.chart')) {
  const lines = JSON.parse(chart.dataset.lines);
  const [svg, grid, cursor, readout] = ['svg', '.grid path', '.cursor', '.readout']
    .map((selector) => chart.querySelector(selector));
  readout.textContent = 'Point or touch for values.';
  const show = (event) => {
    const area = grid.getBoundingClientRect();
    const wanted = (event.clientX - area.x) / area.width * chart.dataset.last;
    const found = lines.map(([, , points]) => nearest(points, wanted));
    const step = nearest(found, wanted)[0];
    cursor.setAttribute('transform', `translate(${step / chart.dataset.last * grid.getBBox().width})`);
    cursor.style.visibility = 'visible';
    const values = lines.map(([name], i) => `${Number(found[i][1].toPrecision(4))} (${name})`);
    readout.textContent = `iteration ${Math.round(step)}: ${values.join(', ')}`;
  };
  for (const event of ['pointermove', 'pointerdown']) svg.addEventListener(event, show);
}

// Pictures: a click shows one in its own size, until the next one.
const dialog = document.getElementById('enlarged');
for (const button of document.querySelectorAll('.picture')) {
  button.addEventListener('click', () => {
    dialog.querySelector('img').replaceWith(button.firstElementChild.cloneNode());
    dialog.showModal();
  });
}
dialog.addEventListener('click', () => dialog.close());
