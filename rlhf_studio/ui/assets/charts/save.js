// A chart as a picture file: what Plotly drew, with our own title and legend, since Plotly is given no text.
import { el } from "../shared/dom.js";

const WIDTH = 900;
const HEIGHT = 420;
const HEAD = 64;
const SCALE = 2;
const FONT = "ui-sans-serif, system-ui, sans-serif";

/**
 * @param plot  the element that Plotly draws into
 * @param root  the page, for the theme's colours
 * @param keys  the legend: [{text, colour}]
 */
export async function saveAsPicture(plot, root, title, keys, name) {
  const url = await window.Plotly.toImage(plot, { format: "png", width: WIDTH, height: HEIGHT, scale: SCALE });
  const drawn = new Image();
  drawn.src = url;
  await drawn.decode();
  const style = getComputedStyle(root);
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: SCALE * WIDTH, height: SCALE * (HEIGHT + HEAD) });
  const pen = canvas.getContext("2d");
  pen.scale(SCALE, SCALE);
  pen.fillStyle = style.getPropertyValue("--rs-card");
  pen.fillRect(0, 0, WIDTH, HEIGHT + HEAD);
  pen.drawImage(drawn, 0, HEAD, WIDTH, HEIGHT);
  pen.fillStyle = style.color;
  pen.font = `600 16px ${FONT}`;
  pen.fillText(title, 16, 28);
  pen.font = `14px ${FONT}`;
  let x = 16;
  for (const { text, colour } of keys) {
    pen.fillStyle = colour;
    pen.fillRect(x, 45, 14, 3);
    pen.fillStyle = style.color;
    pen.fillText(text, x + 20, 51);
    x += 44 + pen.measureText(text).width;
  }
  el("a", { href: canvas.toDataURL("image/png"), download: name }).click();
}
