// The network and the policies of the playground. `show` and `el` are those of the page of plans, below on the page.
// The library is a WebAssembly program: it gets texts and bytes, and returns plans or mistakes.

const SHIPPED = "lenet5_bn";
const LINE = 18; // pixels, as in the style
const MOST_BYTES = 1 << 30; // of a file that is read as a whole
const HEADER = 100_000_000; // bytes that the library reads at most

let library, subject;
// Builds the network again, if the library had to be loaded again.
let make = () => library.Subject.shipped(SHIPPED);
let times = 0;

/** Loads the library. After a crash, for lack of memory, it is loaded anew: nothing of it can be used then. */
async function load() {
  library = await import(`./precast_playground.js?${times += 1}`);
  await library.default();
}

/** Calls the library. Errors that it returns are texts; anything else is a crash. */
async function ask(what) {
  try {
    return await what();
  } catch (failed) {
    if (typeof failed === "string") throw failed;
    console.warn(failed);
    await load();
    subject = make();
    throw "the library stopped: the network probably takes more memory than a browser gives; `precast plan` has no such limit";
  }
}

const state = document.getElementById("state"), models = document.getElementById("models");
const source = document.getElementById("source"), unread = document.getElementById("unread");

function say(place, text) {
  place.textContent = text;
  place.hidden = !text;
}

// The editors of the two policies.
const editors = ["a", "b"].map((id, at) => {
  const letter = id.toUpperCase();
  const choice = el("select", {}), lines = el("pre", { "aria-hidden": "true" });
  const said = el("div", { className: "said", id: `said-${id}`, role: "alert", hidden: true });
  const text = el("textarea", { spellcheck: false, "aria-label": `Text of policy ${letter}`, "aria-describedby": said.id, wrap: "off", autocapitalize: "off" });
  const box = el("div", { className: "editor" }, lines, text);
  const hint = el("p", {}, "A second policy is compared with the first, cell by cell.");
  document.getElementById(id).append(el("label", {}, `Policy ${letter} `, choice), box, hint, said);
  const editor = { choice, text, box, said, wrong: 0 };

  editor.number = () => {
    const count = text.value.split("\n").length;
    lines.replaceChildren(...Array.from({ length: count }, (_, i) => el("span", { className: i + 1 === editor.wrong ? "wrong" : "" }, `${i + 1}\n`)));
    const mark = "color-mix(in srgb, var(--c4) 22%, transparent)";
    text.style.backgroundImage = editor.wrong ? `linear-gradient(${mark}, ${mark})` : "none";
    text.style.backgroundSize = `100% ${LINE}px`;
    text.style.backgroundPosition = `0 ${6 + (editor.wrong - 1) * LINE}px`;
    lines.scrollTop = text.scrollTop;
  };
  /** Marks the line of a mistake, or takes the mark away. */
  editor.mark = mistake => {
    editor.wrong = mistake?.line || 0;
    say(said, mistake?.text || "");
    text.setAttribute("aria-invalid", String(Boolean(mistake)));
    editor.number();
  };
  editor.set = (name, words) => {
    choice.value = name;
    text.value = words;
    box.hidden = !(hint.hidden = name !== "none");
    editor.mark(null);
  };
  editor.isUsed = () => choice.value !== "none";
  choice.addEventListener("change", () => {
    if (choice.value !== "own" || box.hidden) editor.set(choice.value, library.policy_text(choice.value) ?? text.value);
    plan();
  });
  text.addEventListener("input", () => {
    choice.value = library.policies().find(name => library.policy_text(name) === text.value) ?? "own";
    editor.number();
    planSoon();
  });
  text.addEventListener("scroll", () => { lines.scrollTop = text.scrollTop });
  return editor;
});

// Plans.
let soon, took = 0;

/** Plans at once while a plan takes less than 50 ms; otherwise at most a third of the time is spent on plans. */
function planSoon() {
  soon ??= setTimeout(plan, took < 50 ? 0 : 2 * took);
}

async function plan() {
  clearTimeout(soon);
  soon = undefined;
  const began = performance.now();
  const used = editors.filter(editor => editor.isUsed());
  let answer;
  try {
    answer = await ask(() => JSON.parse(subject.plan(used.map(editor => editor.text.value))));
  } catch (failed) {
    answer = { mistake: { policy: 0, text: failed } };
  }
  used.forEach((editor, i) => editor.mark(answer.mistake?.policy === i ? answer.mistake : null));
  if (answer.data) {
    document.body.classList.remove("stale");
    show(answer.data);
    took = performance.now() - began;
    state.textContent = `planned in ${took < 10 ? took.toFixed(1) : Math.round(took)} ms`;
    writeLink();
  } else {
    const { line, column } = answer.mistake;
    const place = line ? `, line ${line}${column ? `, column ${column}` : ""}` : "";
    state.textContent = `a mistake in policy ${"AB"[answer.mistake.policy]}${place}; below is the last plan`;
    document.body.classList.toggle("stale", cells.length > 0);
  }
}

// Networks: the name of the chosen one, and a function that builds the last one from files.
let chosen, own;

/** Takes the network that a function builds; if it fails, the one before remains. `file` names one from files. */
async function take(name, next, file) {
  try {
    const read = await ask(next);
    subject?.free();
    [subject, make, chosen] = [read, next, name];
  } catch (failed) {
    say(unread, String(failed));
    models.value = chosen;
    return;
  }
  if (file) {
    own = next;
    models.querySelector("[value=own]")?.remove();
    models.prepend(el("option", { value: "own" }, file));
  }
  models.value = chosen;
  say(unread, "");
  await plan();
}

const takeShipped = name => take(name, () => library.Subject.shipped(name));

/** Reads the bytes of a safetensors file up to the end of its header. */
async function start(file) {
  const bytes = async end => new Uint8Array(await file.slice(0, end).arrayBuffer());
  const first = await bytes(512);
  if (first.length < 8) return first;
  const length = Number(new DataView(first.buffer).getBigUint64(0, true));
  return length <= HEADER ? bytes(8 + Math.max(length, 504)) : first;
}

/** Takes the files of one network: weights with their `config.json`, an ONNX model, or a model in YAML. */
async function takeFiles(files, folder = "") {
  const of = (...endings) => files.filter(file => endings.some(end => file.name.toLowerCase().endsWith(end)));
  const all = of(".safetensors"), whole = all.filter(file => file.name === "model.safetensors");
  const weights = whole.length ? whole : all;
  const [other] = [...of(".onnx"), ...of(".yaml", ".yml")];
  let name, read;
  try {
    if (weights.length) {
      const [config] = files.filter(file => file.name === "config.json" && file.size < 1 << 24);
      const starts = [];
      for (const file of weights) starts.push([file.name, file.size, await start(file)]);
      const text = config && new Uint8Array(await config.arrayBuffer());
      name = folder || (weights.length > 1 ? `${weights.length} files` : weights[0].name);
      read = () => {
        const headers = new library.Headers();
        starts.forEach(given => headers.add(...given));
        try { return library.Subject.weights(name, headers, text) } finally { headers.free() }
      };
    } else if (!other) {
      throw files.length ? `${files[0].name}: expected a name that ends in .safetensors, .onnx or .yaml` : "the folder has no file";
    } else if (other.size > MOST_BYTES) {
      throw `${other.name}: ${other.size} bytes; a browser reads at most ${MOST_BYTES}, and \`precast plan\` any number`;
    } else {
      name = other.name;
      const bytes = new Uint8Array(await other.arrayBuffer());
      read = name.toLowerCase().endsWith(".onnx") ? () => library.Subject.onnx(name, bytes)
        : () => library.Subject.model(name, new TextDecoder().decode(bytes));
    }
  } catch (failed) {
    return say(unread, typeof failed === "string" ? failed : `the file cannot be read: ${failed.message}`);
  }
  await take("own", read, name);
}

/** Returns the dropped files, and those directly in dropped folders, with the name of the first folder. */
async function dropped(given) {
  const entries = [...given.items].map(item => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [[...given.files]];
  const files = [];
  for (const entry of entries) {
    if (entry.isFile) { files.push(await new Promise((done, failed) => entry.file(done, failed))); continue }
    const reader = entry.createReader();
    const some = () => new Promise((done, failed) => reader.readEntries(done, failed));
    for (let inside = await some(); inside.length; inside = await some()) {
      for (const one of inside.filter(one => one.isFile)) files.push(await new Promise((done, failed) => one.file(done, failed)));
    }
  }
  return [files, entries.find(entry => entry.isDirectory)?.name];
}

document.addEventListener("dragover", event => { event.preventDefault(); source.classList.add("over") });
document.addEventListener("dragleave", event => { if (!event.relatedTarget) source.classList.remove("over") });
document.addEventListener("drop", async event => {
  event.preventDefault();
  source.classList.remove("over");
  try {
    const [files, folder] = await dropped(event.dataTransfer);
    if (files.length || folder) await takeFiles(files, folder);
  } catch (failed) {
    say(unread, `the files cannot be read: ${failed.message}`);
  }
});
document.getElementById("open").addEventListener("click", () => document.getElementById("files").click());
document.getElementById("files").addEventListener("change", async event => {
  await takeFiles([...event.target.files]);
  event.target.value = "";
});
models.addEventListener("change", () => models.value === "own" ? take("own", own) : takeShipped(models.value));

// The link: shipped names as they are, other policies after `~`, compressed, in base64.
const through = (bytes, stream) => new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer();
async function packed(text) {
  const bytes = new Uint8Array(await through(new TextEncoder().encode(text), new CompressionStream("deflate-raw")));
  return "~" + btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
async function unpacked(word) {
  const bytes = Uint8Array.from(atob(word.slice(1).replaceAll("-", "+").replaceAll("_", "/")), of => of.charCodeAt(0));
  return new TextDecoder().decode(await through(bytes, new DecompressionStream("deflate-raw")));
}

let links = 0;
async function writeLink() {
  const link = links += 1;
  const words = chosen === "own" ? [] : [`model=${chosen}`];
  for (const [at, { choice, text }] of editors.entries()) {
    if (choice.value !== "none") words.push(`${"ab"[at]}=${choice.value === "own" ? await packed(text.value) : choice.value}`);
  }
  if (link === links) history.replaceState(null, "", `#${words.join("&")}`);
}

document.getElementById("link").addEventListener("click", async () => {
  const copied = await navigator.clipboard.writeText(location.href).then(() => true, () => false);
  state.textContent = copied ? "copied: the link holds the policies" : "the address of the page is the link: it holds the policies";
});

/** Follows the link of the page. */
async function follow() {
  const given = new Map(location.hash.slice(1).split("&").map(word => word.split("=", 2)));
  for (const [at, editor] of editors.entries()) {
    const word = given.get("ab"[at]) ?? (at ? "none" : "o2");
    let text = library.policy_text(word), name = word;
    if (word.startsWith("~")) [name, text] = ["own", await unpacked(word).catch(() => "# the link was cut: its policy cannot be read\n")];
    editor.set(text === undefined ? (at ? "none" : "own") : name, text ?? "");
  }
  const model = given.get("model");
  if (subject) await plan();
  else await takeShipped(SHIPPED);
  if (model && model !== chosen) await takeShipped(model);
}

try {
  await load();
  models.append(...library.models().map(name => el("option", { value: name }, name)));
  for (const [at, { choice }] of editors.entries()) {
    if (at) choice.append(el("option", { value: "none" }, "none"));
    choice.append(...library.policies().map(name => el("option", { value: name }, name)), el("option", { value: "own" }, "your own"));
  }
  addEventListener("hashchange", follow);
  await follow();
} catch (failed) {
  state.textContent = `the page cannot load its library: ${failed.message ?? failed}`;
}
