// The graph in the middle: it is laid out beside the page, drawn as SVG, moved and zoomed.
"use strict";

class GraphView {
  static LETTER = 6.7;
  static LINE = 14;

  constructor(svg, note) {
    this.svg = svg;
    this.note = note;
    this.number = 0;
    this.box = { x: 0, y: 0, width: 100, height: 100 };
    this.worker = new Worker("layout.js");
    this.worker.onmessage = (message) => {
      if (message.data.number === this.number) this.draw(message.data);
    };
    this.worker.onerror = () => this.say("This graph could not be laid out; `t` shows its text.");
    this.followPointer();
  }

  say(text) {
    this.note.hidden = !text;
    this.note.textContent = text;
  }

  // Ask for the layout of these nodes; what was asked for before is drawn no more.
  show(nodes) {
    this.number += 1;
    this.nodes = nodes.map((node) => ({
      ...node,
      width: 14 + GraphView.LETTER * Math.max(...node.lines.map((line) => line.length)),
      height: 10 + GraphView.LINE * node.lines.length,
    }));
    this.say(nodes.length > 400 ? `Laying out ${nodes.length} nodes; \`t\` shows the text.` : "");
    this.worker.postMessage({ number: this.number, nodes: this.nodes });
  }

  clear() {
    this.number += 1;
    this.say("");
    this.svg.replaceChildren();
    this.svg.dataset.nodes = "0";
  }

  draw(layout) {
    this.say("");
    const parts = [
      '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" ' +
        'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="currentColor"/></marker></defs>',
    ];
    for (const edge of layout.edges) {
      const path = edge.points.map(({ x, y }) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" L");
      parts.push(`<path class="edge" data-from="${edge.from}" data-to="${edge.to}" d="M${path}"/>`);
    }
    layout.nodes.forEach((place, position) => {
      const node = this.nodes[position];
      const left = place.x - node.width / 2;
      const top = place.y - node.height / 2;
      const lines = node.lines.map((line, at) =>
        `<tspan x="${left + 7}" y="${top + 15 + at * GraphView.LINE}">${escaped(line)}</tspan>`);
      parts.push(
        `<g class="node ${node.kind}${node.isNew ? " fresh" : ""}" data-id="${node.id}">` +
          `<rect x="${left}" y="${top}" width="${node.width}" height="${node.height}"/>` +
          `<text>${lines.join("")}</text></g>`);
    });
    this.svg.innerHTML = parts.join("");
    this.whole = { x: 0, y: 0, width: layout.width || 100, height: layout.height || 100 };
    this.svg.dataset.nodes = `${layout.nodes.length}`;
    this.fit();
  }

  // Show all of it, at most at its own size; of a large graph the new nodes.
  fit() {
    if (!this.whole) return;
    const { clientWidth, clientHeight } = this.svg;
    const scale = Math.max(this.whole.width / clientWidth, this.whole.height / clientHeight, 1);
    const width = clientWidth * Math.min(scale, 4);
    const height = clientHeight * Math.min(scale, 4);
    let x = this.whole.width / 2;
    let y = this.whole.height / 2;
    const fresh = this.svg.querySelector(".fresh rect");
    if (scale > 4 && fresh) {
      x = fresh.x.baseVal.value;
      y = fresh.y.baseVal.value;
    }
    this.move({ x: x - width / 2, y: y - height / 2, width, height });
  }

  move(box) {
    this.box = box;
    this.svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.width} ${box.height}`);
  }

  followPointer() {
    const { svg } = this;
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { x, y, width, height } = this.box;
      const factor = Math.exp(event.deltaY / 500);
      const across = event.offsetX / svg.clientWidth;
      const down = event.offsetY / svg.clientHeight;
      this.move({
        x: x + width * across * (1 - factor), y: y + height * down * (1 - factor),
        width: width * factor, height: height * factor,
      });
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      const start = { box: this.box, x: event.clientX, y: event.clientY };
      const drag = (moved) => {
        const scale = start.box.width / svg.clientWidth;
        this.move({
          ...start.box,
          x: start.box.x - (moved.clientX - start.x) * scale,
          y: start.box.y - (moved.clientY - start.y) * scale,
        });
      };
      svg.addEventListener("pointermove", drag);
      window.addEventListener(
        "pointerup", () => svg.removeEventListener("pointermove", drag), { once: true });
    });
    svg.addEventListener("pointerover", (event) => {
      const node = event.target.closest(".node");
      for (const edge of svg.querySelectorAll(".edge")) {
        const { from, to } = edge.dataset;
        edge.classList.toggle("lit", !!node && (from === node.dataset.id || to === node.dataset.id));
      }
    });
  }
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}
