// The lowest contrast (WCAG 2) of all elements with text of their own, and where it is.
(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const [r, g, b] = rgba(colour).map((value) => {
      const x = value / 255;
      return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let here = element; here; here = here.parentElement) {
      const colour = getComputedStyle(here).backgroundColor;
      if (rgba(colour)[3] === 255) return colour;
    }
    return 'white';
  };
  const ownText = (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim();
  let lowest = [Infinity, ''];
  for (const element of document.body.querySelectorAll('*')) {
    const style = getComputedStyle(element);
    if (!element.checkVisibility() || ![...element.childNodes].some(ownText)) continue;
    const text = element.closest('svg') ? style.fill : style.color;
    const [a, b] = [luminance(text), luminance(behind(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < lowest[0]) lowest = [contrast, element.outerHTML.slice(0, 80)];
  }
  return lowest;
})()
