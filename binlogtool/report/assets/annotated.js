"use strict";
(() => {
  const LEAF = 1, BAD = 2, DIFFERS = 4, FIRST = 4096, MOST_HITS = 10000;
  const pieces = [...document.querySelectorAll(".piece")];
  const narrow = matchMedia("(max-width: 760px)");
  const query = document.getElementById("query"), told = document.getElementById("hits");
  const parsed = new WeakMap();
  let current = null, hits = [], hit = -1, asked = "";

  // Nothing that is scrolled to is hidden by the bar at the top, however high it is.
  const bar = document.querySelector("header");
  if (bar && window.ResizeObserver) {
    const height = () => document.documentElement.style.setProperty("--below-bar", `${bar.offsetHeight + 8}px`);
    new ResizeObserver(height).observe(bar);
  }

  // What the log says becomes text nodes only, never markup.
  const make = (tag, name, text) => {
    const node = document.createElement(tag);
    if (name) node.className = name;
    if (text) node.textContent = text;
    return node;
  };
  const rowsOf = (piece) => {
    const told = JSON.parse(new TextDecoder().decode(inflate(bytesOf(piece.querySelector("script").textContent))));
    let at = told[0];
    for (const row of told[2]) {
      at = row[1] += at;
      row[2] += at;
    }
    return told;
  };
  const label = (row) => `${row[3]} = ${row[4]} ${row[5]}`;

  // -- data: RFC 1951 ----------------------------------------------------------------------------------------------

  const bytesOf = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const steps = (first, bits) => bits.map((more) => [first, more, first += 1 << more]);
  const LENGTHS = steps(3, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5]).concat([[258, 0]]);
  const DISTANCES = steps(1, [0, 0, 0, 0, ...Array.from({ length: 26 }, (_, i) => 1 + (i >> 1))]);
  const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
  const huffman = (lengths) => {
    const counts = new Uint16Array(16), starts = new Uint16Array(16), symbols = new Uint16Array(lengths.length);
    for (const one of lengths) counts[one]++;
    counts[0] = 0;
    for (let i = 1; i < 15; i++) starts[i + 1] = starts[i] + counts[i];
    lengths.forEach((one, symbol) => { if (one) symbols[starts[one]++] = symbol; });
    return [counts, symbols];
  };
  const FIXED = [
    huffman(Array.from({ length: 288 }, (_, i) => i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8)), huffman(Array(30).fill(5)),
  ];
  const inflate = (data) => {
    let at = 0, held = 0, bits = 0, end = 0, out = new Uint8Array(8 * data.length + 1024);
    const take = (count) => {
      while (bits < count) {
        held |= data[at++] << bits;
        bits += 8;
      }
      const value = held & ((1 << count) - 1);
      held >>>= count;
      bits -= count;
      return value;
    };
    const symbol = ([counts, symbols]) => {
      for (let code = 0, first = 0, index = 0, length = 1; length < 16; length++) {
        code |= take(1);
        if (code - counts[length] < first) return symbols[index + code - first];
        index += counts[length];
        first = (first + counts[length]) << 1;
        code <<= 1;
      }
      throw new Error("damaged data in this page");
    };
    const room = (count) => {
      if (end + count <= out.length) return;
      const larger = new Uint8Array(2 * out.length + count);
      larger.set(out);
      out = larger;
    };
    const tables = () => {
      const literals = take(5) + 257, distances = take(5) + 1, codes = Array(19).fill(0), lengths = [];
      for (let i = take(4) + 4, n = 0; n < i; n++) codes[ORDER[n]] = take(3);
      const code = huffman(codes);
      while (lengths.length < literals + distances) {
        const one = symbol(code), last = lengths.at(-1);
        if (one < 16) lengths.push(one);
        else lengths.push(...Array(one === 16 ? 3 + take(2) : one === 17 ? 3 + take(3) : 11 + take(7)).fill(one === 16 ? last : 0));
      }
      return [huffman(lengths.slice(0, literals)), huffman(lengths.slice(literals))];
    };
    for (let last = 0; !last;) {
      last = take(1);
      const kind = take(2);
      if (kind === 0) {
        held = bits = 0;
        const size = data[at] | data[at + 1] << 8;
        room(size);
        out.set(data.subarray(at + 4, at + 4 + size), end);
        at += 4 + size;
        end += size;
        continue;
      }
      const [literals, distances] = kind === 1 ? FIXED : tables();
      for (let one = symbol(literals); one !== 256; one = symbol(literals)) {
        room(258);
        if (one < 256) out[end++] = one;
        else {
          const [length, more] = LENGTHS[one - 257], size = length + take(more), [far, far_more] = DISTANCES[symbol(distances)];
          const distance = far + take(far_more);
          for (let i = 0; i < size; i++, end++) out[end] = out[end - distance];
        }
      }
    }
    return out.subarray(0, end);
  };

  // -- bytes -----------------------------------------------------------------------------------------------------

  const runs = (rows, start, stop) => {
    const found = [];
    let at = start;
    rows.forEach((row, i) => {
      if (!(row[6] & LEAF) || row[2] <= at) return;
      if (row[1] > at) found.push([at, row[1], -1]);
      found.push([Math.max(row[1], at), Math.min(row[2], stop), i]);
      at = row[2];
    });
    if (at < stop) found.push([at, stop, -1]);
    return found.filter((run) => run[0] < run[1]);
  };
  // Cuts runs where bytes begin or cease to differ from those of the other log; the last member says which do.
  const cut = (found, places) => found.flatMap(([from, to, row]) => {
    const inside = places.filter(([first, last]) => first < to && from < last);
    const at = [...new Set([from, to, ...inside.flat().filter((one) => from < one && one < to)])].sort((a, b) => a - b);
    return at.slice(1).map((end, i) => [at[i], end, row, inside.some(([first, last]) => first <= at[i] && at[i] < last)]);
  });
  const drawBytes = (box, [start, text, rows, places = []], most) => {
    const held = bytesOf(text);
    const width = narrow.matches ? 8 : 16, stop = start + Math.min(held.length, most);
    const parts = cut(runs(rows, start, stop), places);
    let part = 0;
    box.replaceChildren();
    for (let line = start - start % width; line < stop; line += width) {
      const from = Math.max(line, start), to = Math.min(line + width, stop);
      const hex = make("span"), text = make("span", "text");
      hex.append(" ".repeat(3 * (from - line)));
      text.append(" ".repeat(from - line));
      while (part < parts.length && parts[part][0] < to) {
        const [first, last, row, differs] = parts[part], some = held.slice(Math.max(first, from) - start, Math.min(last, to) - start);
        const kind = row < 0 ? "" : rows[row][6] & BAD ? "bad" : `c${row % 6}`, name = differs ? `${kind} differs` : kind;
        const digits = make("i", name, [...some].map((b) => b.toString(16).padStart(2, "0")).join(" "));
        const signs = make("i", name, [...some].map((b) => b > 31 && b < 127 ? String.fromCharCode(b) : ".").join(""));
        if (row >= 0) digits.dataset.row = signs.dataset.row = row;
        hex.append(digits, " ");
        text.append(signs);
        if (last > to) break;
        part++;
      }
      hex.append(" ".repeat(3 * (line + width - to)));
      const whole = make("div");
      whole.append(make("span", "at", line.toString(16).padStart(8, "0")), "  ", hex, " ", text);
      box.append(whole);
    }
    if (stop < start + held.length) {
      const more = make("button", "more", `${(start + held.length - stop).toLocaleString("en")} bytes more`);
      more.onclick = () => drawBytes(box, [start, text, rows, places], held.length);
      box.append(more);
    }
  };

  // -- fields ----------------------------------------------------------------------------------------------------

  const drawRow = (row, i, rows, least) => {
    const node = make("div", `row${row[6] & BAD ? " bad" : ""}${row[6] & DIFFERS ? " differs" : ""}`);
    node.setAttribute("role", "treeitem");
    node.setAttribute("aria-level", row[0] + 1);
    node.tabIndex = -1;
    node.dataset.row = i;
    node.style.paddingLeft = `${(row[0] - least) * 1.1}em`;
    if (!(row[6] & LEAF) && rows[i + 1] && rows[i + 1][0] > row[0]) node.setAttribute("aria-expanded", "true");
    const leaf = row[6] & LEAF && !(row[6] & BAD);
    node.append(make("span", "fold"), make("span", leaf ? `name c${i % 6}` : "name", row[3]));
    if (row[4]) node.append(" = ", make("span", "value", row[4]));
    if (row[5]) node.append("  ", make("span", row[5].startsWith("ok (") ? "meaning good" : "meaning", row[5]));
    return node;
  };
  const draw = (piece) => {
    const body = piece.querySelector(".body");
    if (body.firstChild) return;
    const told = rowsOf(piece), rows = told[2];
    const bytes = make("div", "bytes"), tree = make("div", "tree");
    tree.setAttribute("role", "tree");
    const least = rows.reduce((depth, row) => Math.min(depth, row[0]), 99);
    tree.append(...rows.map((row, i) => drawRow(row, i, rows, least)));
    drawBytes(bytes, told, FIRST);
    body.append(bytes, tree);
    body.style.minHeight = "";
    parsed.set(piece, rows);
  };
  const clear = (piece) => {
    const body = piece.querySelector(".body");
    if (!body.firstChild || piece.contains(current) || body.querySelector('[aria-expanded="false"]')) return;
    body.style.minHeight = `${body.offsetHeight}px`;
    body.replaceChildren();
    parsed.delete(piece);
  };
  const guess = (piece) => {
    const rows = +piece.dataset.rows, lines = Math.ceil((piece.dataset.to - piece.dataset.from) / 16);
    piece.querySelector(".body").style.minHeight = `${19 * Math.max(rows, Math.min(lines, FIRST / 16))}px`;
  };
  const near = new IntersectionObserver((seen) => {
    for (const one of seen) (one.isIntersecting ? draw : clear)(one.target);
  }, { rootMargin: "1500px" });

  // -- links between both ----------------------------------------------------------------------------------------

  const light = (node) => {
    document.querySelectorAll(".on").forEach((one) => one.classList.remove("on"));
    const piece = node && node.closest(".piece"), rows = piece && parsed.get(piece);
    if (!rows || node.dataset.row === undefined) return;
    const [, from, to] = rows[node.dataset.row];
    for (const one of piece.querySelectorAll("i[data-row]")) {
      const row = rows[one.dataset.row];
      if (row[1] < to && row[2] > from) one.classList.add("on");
    }
    piece.querySelector(`.row[data-row="${node.dataset.row}"]`).classList.add("on");
    const box = piece.querySelector(".bytes"), first = box.querySelector("i.on");
    if (first && (first.offsetTop < box.scrollTop || first.offsetTop + first.offsetHeight > box.scrollTop + box.clientHeight))
      box.scrollTop = first.offsetTop - box.clientHeight / 3;
  };
  const choose = (row, scroll = true) => {
    if (!row) return;
    if (current) current.tabIndex = -1;
    current = row;
    row.tabIndex = 0;
    row.focus({ preventScroll: true });
    if (scroll) row.scrollIntoView({ block: "nearest" });
    light(row);
  };
  const visible = (row) => row && !row.hidden;
  const step = (by) => {
    if (!current) return choose(rowAt(0, by < 0 ? -1 : 0));
    const side = by > 0 ? "nextElementSibling" : "previousElementSibling";
    let row = current[side];
    while (row && !visible(row)) row = row[side];
    if (row) return choose(row);
    for (let i = pieces.indexOf(current.closest(".piece")) + by; pieces[i]; i += by)
      if (!folded(pieces[i])) return choose(rowAt(i, by > 0 ? 0 : -1));
  };
  const rowAt = (i, row) => {
    if (!pieces[i]) return null;
    fold(pieces[i], false);
    draw(pieces[i]);
    const found = [...pieces[i].querySelectorAll(".row")].at(row);
    open(found);
    return found;
  };

  // -- open and closed -------------------------------------------------------------------------------------------

  const level = (row) => +row.getAttribute("aria-level");
  const spread = (row, wide) => {
    if (!row.hasAttribute("aria-expanded")) return;
    row.setAttribute("aria-expanded", wide);
    let closed = wide ? 99 : level(row);
    for (let next = row.nextElementSibling; next && level(next) > level(row); next = next.nextElementSibling) {
      if (level(next) <= closed) closed = wide ? 99 : closed;
      next.hidden = level(next) > closed;
      if (wide && !next.hidden && next.getAttribute("aria-expanded") === "false") closed = level(next);
    }
  };
  const above = (row) => {
    let one = row.previousElementSibling;
    while (one && level(one) >= level(row)) one = one.previousElementSibling;
    return one;
  };
  const open = (row) => {
    for (let one = row && above(row); one; one = above(one)) spread(one, true);
  };
  const folded = (piece) => piece.querySelector("h2 button").getAttribute("aria-expanded") === "false";
  const fold = (piece, shut) => {
    piece.querySelector("h2 button").setAttribute("aria-expanded", !shut);
    piece.querySelector(".body").hidden = shut;
    piece.querySelector(".body").style.display = shut ? "none" : "";
  };

  // -- finding ---------------------------------------------------------------------------------------------------

  const goTo = (offset) => {
    const i = pieces.findIndex((one) => !("packed" in one.dataset) && +one.dataset.from <= offset && offset < +one.dataset.to);
    if (i < 0) return false;
    draw(pieces[i]);
    const rows = parsed.get(pieces[i]);
    const row = rows.findIndex((one) => one[6] & LEAF && one[1] <= offset && offset < one[2]);
    pieces[i].scrollIntoView();
    choose(rowAt(i, Math.max(row, 0)));
    return true;
  };
  const search = (text) => {
    asked = text;
    hits = [];
    hit = -1;
    if (/^0x[0-9a-f]+$/i.test(text)) {
      told.textContent = goTo(parseInt(text, 16)) ? "" : "not on this page";
      return;
    }
    const wanted = text.toLowerCase();
    for (let i = 0; wanted && i < pieces.length && hits.length < MOST_HITS; i++)
      rowsOf(pieces[i])[2].forEach((row, at) => {
        if (label(row).toLowerCase().includes(wanted)) hits.push([i, at]);
      });
    next(1);
  };
  const next = (by) => {
    if (!hits.length) {
      told.textContent = asked ? "no hits" : "";
      return;
    }
    hit = (hit + by + hits.length) % hits.length;
    told.textContent = `${hit + 1} of ${hits.length}${hits.length < MOST_HITS ? "" : " or more"}`;
    const row = rowAt(...hits[hit]);
    choose(row);
    row.classList.add("hit");
  };
  const damage = (by) => {
    const bad = pieces.filter((piece) => piece.matches(".bad, .differs"));
    if (!bad.length) return void (told.textContent = "no damage");
    const here = current ? pieces.indexOf(current.closest(".piece")) : by > 0 ? -1 : pieces.length;
    const ahead = by > 0 ? bad.find((one) => pieces.indexOf(one) > here) : bad.findLast((one) => pieces.indexOf(one) < here);
    const piece = ahead || bad.at(by > 0 ? 0 : -1), i = pieces.indexOf(piece);
    draw(piece);
    const rows = parsed.get(piece), leaf = rows.findIndex((one) => one[6] & LEAF && one[6] & (BAD | DIFFERS));
    const row = leaf < 0 ? rows.findIndex((one) => one[6] & BAD) : leaf;
    piece.scrollIntoView();
    choose(rowAt(i, Math.max(row, 0)));
  };

  // -- what hands do ---------------------------------------------------------------------------------------------

  const does = {
    fold: () => {
      const shut = !pieces.every(folded);
      pieces.forEach((piece) => fold(piece, shut));
    },
    damage: () => damage(1),
    theme: () => {
      const dark = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
      document.documentElement.dataset.theme = dark === "dark" ? "light" : "dark";
    },
    help: () => {
      const help = document.getElementById("help");
      help.hidden = !help.hidden;
      document.querySelector('[data-do="help"]').setAttribute("aria-expanded", !help.hidden);
    },
  };
  const keys = {
    ArrowDown: () => step(1), j: () => step(1), ArrowUp: () => step(-1), k: () => step(-1),
    ArrowLeft: () => {
      if (!current) return;
      if (current.getAttribute("aria-expanded") === "true") spread(current, false);
      else choose(above(current));
    },
    ArrowRight: () => current && (current.getAttribute("aria-expanded") === "false" ? spread(current, true) : step(1)),
    "/": () => query.select(), n: () => next(1), N: () => next(-1), d: () => damage(1), D: () => damage(-1),
    f: does.fold, t: does.theme, "?": does.help,
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target === query) {
      if (event.key === "Escape") query.blur();
      return;
    }
    const action = Object.hasOwn(keys, event.key) && keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  document.addEventListener("pointerover", (event) => {
    const node = event.target.closest("i[data-row], .row");
    light(node || current);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button && button.dataset.do) return does[button.dataset.do]();
    if (button && button.closest("h2")) return fold(button.closest(".piece"), !folded(button.closest(".piece")));
    const node = event.target.closest("i[data-row], .row");
    if (!node) return;
    if (event.target.className === "fold") spread(node, node.getAttribute("aria-expanded") === "false");
    const row = node.closest(".piece").querySelector(`.row[data-row="${node.dataset.row}"]`);
    open(row);
    choose(row);
  });
  document.getElementById("tools").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = query.value.trim();
    if (text && text === asked && hits.length) next(1);
    else search(text);
  });
  const linked = () => /^#0x[0-9a-f]+$/i.test(location.hash) && goTo(parseInt(location.hash.slice(1), 16));
  addEventListener("hashchange", linked);
  narrow.addEventListener("change", () => pieces.forEach((piece) => {
    const box = piece.querySelector(".bytes");
    if (!box) return;
    drawBytes(box, rowsOf(piece), FIRST);
  }));
  pieces.forEach((piece) => {
    guess(piece);
    near.observe(piece);
  });
  linked();
})();
