// Light or dark: the system's setting until the button is pressed.
const { style } = document.documentElement;
const themeButton = document.getElementById('theme');
themeButton.hidden = false;
themeButton.addEventListener('click', () => {
  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  style.colorScheme = (style.colorScheme || system) === 'dark' ? 'light' : 'dark';
});

// Tables: a click on a heading sorts, numbers descending, names from A to Z; a second one reverses.
for (const head of document.querySelectorAll('thead th')) {
  head.firstElementChild.addEventListener('click', () => {
    const isNumber = head.classList.contains('number');
    const ascending = isNumber ? head.ariaSort === 'descending' : head.ariaSort !== 'ascending';
    const value = (row) => row.cells[head.cellIndex].dataset.value;
    const body = head.closest('table').tBodies[0];
    body.append(...[...body.rows].sort((one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === '' || b === '') return (a === '') - (b === ''); // no value: always last
      const order = isNumber ? a - b : a.localeCompare(b, undefined, { numeric: true });
      return ascending ? order : -order;
    }));
    for (const other of head.parentNode.cells) other.ariaSort = 'none';
    head.ariaSort = ascending ? 'ascending' : 'descending';
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
  svg.onpointermove = svg.onpointerdown = (event) => {
    const area = grid.getBoundingClientRect();
    const wanted = (event.clientX - area.x) / area.width * chart.dataset.last;
    const found = lines.map(([, , points]) => nearest(points, wanted));
    const step = nearest(found, wanted)[0];
    const x = step / chart.dataset.last * grid.getBBox().width;
    cursor.setAttribute('transform', `translate(${x})`);
    cursor.style.visibility = 'visible';
    const values = lines.map(([name], i) => `${Number(found[i][1].toPrecision(4))} (${name})`);
    readout.textContent = `iteration ${Math.round(step)}: ${values.join(', ')}`;
  };
}

// Pictures: a click shows one in full size, the next click closes it.
const dialog = document.getElementById('enlarged');
for (const button of document.querySelectorAll('.picture')) {
  button.addEventListener('click', () => {
    dialog.querySelector('img').replaceWith(button.firstElementChild.cloneNode());
    dialog.showModal();
  });
}
dialog.addEventListener('click', () => dialog.close());
