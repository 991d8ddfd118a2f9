"use strict";
/* Shared by the pages: a websocket that delivers the view, opened again when it was lost.

   text messages    what is shown, 15 a second
   binary messages  an image: one byte, the length of the camera's name; the name; a JPEG */

const at = (id) => document.getElementById(id);

let socket = null, heardAt = 0;

/* show: receives the view. showPicture: receives a camera's name and a JPEG. lost: the connection is lost. */
function listen(show, showPicture, lost) {
  heardAt = performance.now();
  setInterval(() => { if (socket && socket.readyState === WebSocket.OPEN && performance.now() - heardAt > 2000) lost(); }, 500);
  connect(show, showPicture, lost);
}

function connect(show, showPicture, lost) {
  const url = new URL("feed", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  url.search = "";
  socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  socket.onmessage = (event) => {
    heardAt = performance.now();
    if (typeof event.data === "string") return show(JSON.parse(event.data));
    const bytes = new Uint8Array(event.data), end = 1 + bytes[0];
    showPicture(new TextDecoder().decode(bytes.subarray(1, end)), bytes.subarray(end));
  };
  socket.onclose = () => { lost(); setTimeout(() => connect(show, showPicture, lost), 500); };
}

function banner(text) {
  at("banner").hidden = !text;
  setText(at("banner"), text || "");
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const loading = new Map();  // image -> the newest JPEG that came while it was loading, or null

function setPicture(image, jpeg) {
  if (loading.has(image)) return loading.set(image, jpeg);  // a slow browser skips images
  loading.set(image, null);
  const old = image.src;
  image.onload = image.onerror = () => {
    if (old) URL.revokeObjectURL(old);
    const next = loading.get(image);
    loading.delete(image);
    if (next) setPicture(image, next);
  };
  image.src = URL.createObjectURL(new Blob([jpeg], { type: "image/jpeg" }));
}
