/* Paints the picture of branches on a canvas. Rows, columns and lines come from the server or from the exported file. */
var sessionGraph = (function () {
  "use strict";
  var UP = 1, DOWN = 2, LEFT = 4, RIGHT = 8;
  var HUES = [150, 265, 30, 205, 340, 90, 180, 300, 55, 235];
  var KINDS = { user: "you", assistant: "answer", tool: "result", summary: "summary", merge: "merge", system: "system" };

  function Graph(panel, data, options) {
    this.panel = panel;
    this.canvas = panel.querySelector("#graph-canvas");
    this.map = panel.querySelector("#graph-map");
    this.tip = panel.querySelector("#graph-tip");
    this.status = panel.querySelector("#graph-selected");
    this.options = options;
    this.scale = 1;
    this.top = 0;
    this.left = 0;
    this.isFolded = false;
    this.selected = -1;
    this.pending = false;
    panel.hidden = false;
    this.setData(data);
    this.selected = this.rowOf(data.here);
    this.listen();
    this.resize();
    this.reveal(this.selected);
  }

  Graph.prototype.setData = function (data) {
    var node = this.data && this.selected >= 0 ? this.rows.nodes[this.selected] : null;
    this.data = data;
    this.indexOf = {};
    for (var at = 0; at < data.nodes.length; at++) this.indexOf[data.nodes[at]] = at;
    this.isMerge = {};
    data.merges.forEach(function (row) { this.isMerge[row] = true; }, this);
    this.choose();
    if (node !== null) this.selected = this.positions[this.indexOf[node]];
    if (this.selected === undefined) this.selected = -1;
    this.draw();
  };

  Graph.prototype.choose = function () {
    this.rows = this.isFolded ? this.data.folded : this.data.rows;
    this.positions = {};
    this.columns = 1;
    for (var at = 0; at < this.rows.nodes.length; at++) {
      this.positions[this.indexOf[this.rows.nodes[at]]] = at;
      if (this.rows.cells[at].length > this.columns) this.columns = this.rows.cells[at].length;
    }
  };

  /* The position among the rows that are drawn, of a row of the whole picture. */
  Graph.prototype.rowOf = function (row) {
    while (row >= 0 && this.positions[row] === undefined) row = this.data.parents[row];
    return row >= 0 ? this.positions[row] : -1;
  };

  Graph.prototype.rowHeight = function () { return Math.max(2, 24 * this.scale); };
  Graph.prototype.columnWidth = function () { return Math.max(3, 14 * this.scale); };

  Graph.prototype.color = function (column, alpha) {
    var isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    return "hsla(" + HUES[column % HUES.length] + ",55%," + (isDark ? "68%" : "38%") + "," + alpha + ")";
  };

  Graph.prototype.limit = function () {
    var height = this.canvas.clientHeight, all = this.rows.nodes.length * this.rowHeight() + 12;
    this.top = Math.max(0, Math.min(this.top, all - height));
    this.left = Math.max(0, Math.min(this.left, this.columns * this.columnWidth()));
  };

  Graph.prototype.resize = function () {
    [this.canvas, this.map].forEach(function (canvas) {
      var ratio = window.devicePixelRatio || 1;
      canvas.width = Math.max(1, canvas.clientWidth * ratio);
      canvas.height = Math.max(1, canvas.clientHeight * ratio);
    });
    this.draw();
  };

  Graph.prototype.draw = function () {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(function () { this.pending = false; this.paint(); }.bind(this));
  };

  Graph.prototype.paint = function () {
    this.limit();
    var canvas = this.canvas, context = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1;
    var style = getComputedStyle(canvas), ink = style.color, height = this.rowHeight(), width = this.columnWidth();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    var first = Math.max(0, Math.floor(this.top / height)), last = Math.min(this.rows.nodes.length, first + Math.ceil(canvas.clientHeight / height) + 1);
    if (this.options.describe) this.options.describe(this, first, last);
    context.lineWidth = Math.max(1, 2 * this.scale);
    context.font = Math.round(12 * Math.min(this.scale, 1.4)) + "px " + style.fontFamily;
    context.textBaseline = "middle";
    for (var at = first; at < last; at++) this.paintRow(context, at, at * height - this.top + 6, height, width, ink);
    this.paintMap(ink);
  };

  Graph.prototype.paintRow = function (context, at, y, height, width, ink) {
    var cells = this.rows.cells[at], index = this.indexOf[this.rows.nodes[at]], column = this.rows.columns[at];
    var x0 = 8 - this.left, middle = y + height / 2, isActive = this.data.active[index] === "1";
    for (var c = 0; c < cells.length; c++) {
      var cell = parseInt(cells[c], 16), x = x0 + c * width + width / 2;
      if (!cell) continue;
      context.strokeStyle = this.color(c, .85);
      context.beginPath();
      if (cell & UP) { context.moveTo(x, y); context.lineTo(x, middle); }
      if (cell & DOWN) { context.moveTo(x, middle); context.lineTo(x, y + height); }
      if (cell & LEFT) { context.moveTo(x - width / 2, middle); context.lineTo(x, middle); }
      if (cell & RIGHT) { context.moveTo(x, middle); context.lineTo(x + width / 2, middle); }
      context.stroke();
    }
    var dot = x0 + column * width + width / 2, radius = Math.max(1.5, 4.2 * this.scale);
    context.fillStyle = this.color(column, 1);
    context.strokeStyle = this.color(column, 1);
    context.beginPath();
    if (this.isMerge[index]) { context.moveTo(dot, middle - radius - 1); context.lineTo(dot + radius + 1, middle); context.lineTo(dot, middle + radius + 1); context.lineTo(dot - radius - 1, middle); context.closePath(); }
    else context.arc(dot, middle, radius, 0, 7);
    if (isActive) context.fill(); else { context.save(); context.fillStyle = getComputedStyle(this.panel).backgroundColor; context.fill(); context.restore(); context.stroke(); }
    if (at === this.selected) { context.strokeStyle = ink; context.strokeRect(2, y + 1, this.canvas.clientWidth - 4, height - 2); }
    if (height < 11) return;
    var text = x0 + Math.max(cells.length, 1) * width + 8, label = this.data.labels[index];
    if (label) {
      label = label.slice(0, 40);
      var wide = context.measureText(label).width + 10;
      context.fillStyle = this.color(column, .25);
      context.fillRect(text, middle - 8, wide, 16);
      context.fillStyle = ink;
      context.fillText(label, text + 5, middle);
      text += wide + 6;
    }
    context.globalAlpha = isActive ? 1 : .7;
    context.fillStyle = ink;
    context.fillText(this.describe(at).slice(0, 160), text, middle);
    context.globalAlpha = 1;
  };

  /* What a row says, on one line. */
  Graph.prototype.describe = function (at) {
    var index = this.indexOf[this.rows.nodes[at]], hidden = this.rows.hidden[at];
    var kind = this.data.kinds[index] || "", parts = [];
    if (index === this.data.here) parts.push("◀ here");
    if (kind) parts.push((KINDS[kind] || kind) + ":");
    parts.push(this.data.texts[index] || (kind ? "" : this.data.ids[index].slice(0, 8)));
    if (hidden) parts.push("(+" + hidden + ")");
    return parts.join(" ");
  };

  Graph.prototype.paintMap = function (ink) {
    var map = this.map, context = map.getContext("2d"), ratio = window.devicePixelRatio || 1;
    var wide = map.clientWidth, high = map.clientHeight, count = this.rows.nodes.length, step = Math.max(1, Math.floor(count / (high * 2)));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, wide, high);
    for (var at = 0; at < count; at += step) {
      context.fillStyle = this.color(this.rows.columns[at], this.data.active[this.indexOf[this.rows.nodes[at]]] === "1" ? 1 : .5);
      context.fillRect(2 + this.rows.columns[at] / Math.max(this.columns, 4) * (wide - 6), at / count * high, 3, Math.max(1, Math.min(3, high / count)));
    }
    var all = count * this.rowHeight() + 12, shown = Math.min(1, this.canvas.clientHeight / all);
    context.strokeStyle = ink;
    context.strokeRect(.5, this.top / all * high + .5, wide - 1, Math.max(4, shown * high - 1));
  };

  Graph.prototype.reveal = function (at) {
    if (at < 0) return;
    var height = this.rowHeight(), y = at * height, shown = this.canvas.clientHeight;
    if (y < this.top || y + height > this.top + shown) this.top = y - shown / 2;
    this.draw();
  };

  Graph.prototype.select = function (at) {
    if (at < 0 || at >= this.rows.nodes.length) return;
    this.selected = at;
    if (this.options.describe) this.options.describe(this, at, at + 1);
    this.tell();
    this.reveal(at);
  };

  Graph.prototype.tell = function () {
    if (this.selected < 0) return;
    var index = this.indexOf[this.rows.nodes[this.selected]];
    var label = this.data.labels[index];
    this.status.textContent = this.describe(this.selected).slice(0, 120) + (label ? " [" + label + "]" : "");
  };

  Graph.prototype.go = function () {
    if (this.selected >= 0) this.options.go(this.data.ids[this.indexOf[this.rows.nodes[this.selected]]]);
  };

  Graph.prototype.zoom = function (factor, y) {
    var before = this.rowHeight(), at = (this.top + y) / before;
    this.scale = Math.max(.06, Math.min(2, this.scale * factor));
    this.top = at * this.rowHeight() - y;
    this.draw();
  };

  Graph.prototype.fold = function () {
    var index = this.selected >= 0 ? this.indexOf[this.rows.nodes[this.selected]] : -1;
    this.isFolded = !this.isFolded;
    this.choose();
    this.selected = this.rowOf(index);
    this.panel.querySelector('[data-graph="fold"]').setAttribute("aria-pressed", String(this.isFolded));
    this.top = 0;
    this.reveal(this.selected);
    this.draw();
  };

  /* To a parent (-1), or to the start of a branch that forks here (1). */
  Graph.prototype.walk = function (direction) {
    var index = this.indexOf[this.rows.nodes[this.selected]], parents = this.data.parents;
    if (direction < 0) { this.select(this.rowOf(parents[index])); return; }
    for (var at = this.selected + 2; at < this.rows.nodes.length; at++)
      if (parents[this.indexOf[this.rows.nodes[at]]] === index) { this.select(at); return; }
    this.select(this.selected + 1);
  };

  Graph.prototype.rowAt = function (event) {
    var at = Math.floor((event.clientY - this.canvas.getBoundingClientRect().top + this.top - 6) / this.rowHeight());
    return at >= 0 && at < this.rows.nodes.length ? at : -1;
  };

  Graph.prototype.hover = function (event) {
    var at = this.rowAt(event);
    this.tip.hidden = at < 0;
    if (at < 0) return;
    var text = this.describe(at), label = this.data.labels[this.indexOf[this.rows.nodes[at]]];
    this.tip.textContent = (label ? "[" + label + "] " : "") + text;
    var box = this.panel.getBoundingClientRect();
    this.tip.dataset.side = event.clientY - box.top > box.height / 2 ? "top" : "bottom";
    if (this.options.preview) this.options.preview(this.data.ids[this.indexOf[this.rows.nodes[at]]], this.tip);
  };

  Graph.prototype.listen = function () {
    var graph = this, canvas = this.canvas, drag = null, hoverTimer = 0;
    canvas.addEventListener("wheel", function (event) {
      event.preventDefault();
      var y = event.clientY - canvas.getBoundingClientRect().top;
      if (event.ctrlKey || event.metaKey) graph.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, y);
      else { graph.top += event.deltaY; graph.left += event.deltaX; graph.draw(); }
    }, { passive: false });
    canvas.addEventListener("pointerdown", function (event) {
      drag = { y: event.clientY, x: event.clientX, top: graph.top, left: graph.left, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", function (event) {
      if (drag) {
        if (Math.abs(event.clientY - drag.y) + Math.abs(event.clientX - drag.x) > 4) drag.moved = true;
        graph.top = drag.top - (event.clientY - drag.y);
        graph.left = drag.left - (event.clientX - drag.x);
        graph.draw();
        return;
      }
      clearTimeout(hoverTimer);
      hoverTimer = setTimeout(function () { graph.hover(event); }, 60);
    });
    canvas.addEventListener("pointerup", function (event) {
      var moved = drag && drag.moved;
      drag = null;
      if (moved) return;
      var at = graph.rowAt(event);
      if (at >= 0) { graph.select(at); graph.go(); }
    });
    canvas.addEventListener("pointerleave", function () { clearTimeout(hoverTimer); graph.tip.hidden = true; });
    canvas.addEventListener("keydown", function (event) {
      var moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 };
      if (event.key in moves) graph.select(Math.max(0, Math.min(graph.rows.nodes.length - 1, graph.selected + moves[event.key])));
      else if (event.key === "Home") graph.select(0);
      else if (event.key === "End") graph.select(graph.rows.nodes.length - 1);
      else if (event.key === "ArrowLeft") graph.walk(-1);
      else if (event.key === "ArrowRight") graph.walk(1);
      else if (event.key === "Enter") graph.go();
      else if (event.key === "+" || event.key === "=") graph.zoom(1.25, canvas.clientHeight / 2);
      else if (event.key === "-") graph.zoom(1 / 1.25, canvas.clientHeight / 2);
      else if (event.key === "f" || event.key === "F") graph.fold();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.map.addEventListener("pointerdown", function (event) {
      var box = graph.map.getBoundingClientRect();
      graph.top = (event.clientY - box.top) / box.height * graph.rows.nodes.length * graph.rowHeight() - canvas.clientHeight / 2;
      graph.draw();
    });
    this.panel.querySelectorAll("[data-graph]").forEach(function (button) {
      button.addEventListener("click", function () {
        var kind = button.dataset.graph;
        if (kind === "in") graph.zoom(1.4, canvas.clientHeight / 2);
        if (kind === "out") graph.zoom(1 / 1.4, canvas.clientHeight / 2);
        if (kind === "here") graph.select(graph.rowOf(graph.data.here));
        if (kind === "fold") graph.fold();
        if (kind === "wide") {
          var isWide = graph.panel.classList.toggle("wide-graph");
          button.setAttribute("aria-pressed", String(isWide));
          graph.resize();
        }
      });
    });
    window.addEventListener("resize", function () { graph.resize(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { graph.draw(); });
  };

  return { create: function (panel, data, options) { return new Graph(panel, data, options); } };
})();
