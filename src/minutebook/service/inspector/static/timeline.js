// Draws the picture of the timeline on a canvas, twice as large, and saves it as PNG.
"use strict";
document.getElementById("png").addEventListener("click", async (event) => {
  const button = event.target;
  const text = await (await fetch(button.dataset.svg)).text();
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * image.width;
  canvas.height = 2 * image.height;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const link = document.createElement("a");
  link.href = canvas.toDataURL("image/png");
  link.download = "timeline.png";
  link.click();
});
