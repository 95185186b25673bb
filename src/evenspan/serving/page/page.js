"use strict";
const EXAMPLE = `The harbour of Lindholm was rebuilt in the spring of 1987, after a storm had taken the old pier. Engineers drove oak piles eleven metres into the clay and laid a deck of larch on them. Fishing boats came back in June, and the ferry to the islands in the autumn of the same year. The town paid a third of the bill, the county the rest.

The market stands behind the harbour, on a square that was paved with granite from a quarry in the hills. Farmers sell apples, honey and smoked eel there on Wednesdays and Saturdays. In winter the stalls move into the old rope works, whose long hall was heated for the first time in 2003. A baker from the valley brings rye bread that is sold out before nine.

The school lies on the hill above the market and teaches two hundred children. Its library holds nine thousand books, many of them the gift of a retired sea captain. Lessons in the upper classes are held in two languages. Every May the pupils plant a tree for each child that was born in the parish that year, and by now the wood reaches down to the road.

The lighthouse on the northern cape has been automatic since 1974. Its lens was made in Paris and turns once in twelve seconds on a bath of oil. Volunteers paint the tower white every fourth summer and open it to visitors on Sundays. From the gallery one sees three islands, and on clear days the coast on the other side of the sound.

A railway once joined the town to the capital. The last train left in 1969, and the line is a path for bicycles now, forty kilometres long and almost flat. The station became a theatre with ninety seats, where amateurs play comedies in the dark months. Its clock still shows the time of the last departure.

The church has an organ from 1742, which was silent for thirty years after lightning had struck the tower. Marta Eklund, an organ builder from the next valley, repaired it with her two sons between 2011 and 2014. She found most of the pipes in a barn, wrapped in sailcloth. It was played again on Christmas Eve, and has been every week since.`;
const byId = (id) => document.getElementById(id);
const percent = (value) => `${(100 * value).toFixed(1)} %`;
let key = "", base = {}, running = null, timer = 0;

async function ask(path, body) {
  running?.abort();
  running = new AbortController();
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const options = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const answer = await fetch(path, { ...options, headers, signal: running.signal });
  const values = await answer.json().catch(() => ({}));
  if (answer.status === 401) byId("key-form").hidden = false;
  if (!answer.ok) throw new Error(values.error?.message ?? `The server answered ${answer.status}.`);
  byId("key-form").hidden = true;
  return values;
}

function say(text, bad = false) {
  byId("status").textContent = text;
  byId("status").className = bad ? "bad" : "";
}

async function begin() {
  try {
    const model = (await ask("v1/models")).data[0];
    byId("model").textContent = `${model.id}, served with the calibration ${model.calibration}. How much each part of a document contributes to its vector.`;
    const own = model.calibration === "none" ? "soft" : model.calibration;
    base = Object.fromEntries(own.split(",").map((part, at) => (at ? part.split("=") : ["variant", part])));
    const layers = base.layers ?? "half";
    if (![...byId("layers").options].some((one) => one.value === layers)) byId("layers").add(new Option(layers, layers));
    byId("layers").value = layers;
    byId("partition").value = base.partition ?? "paper";
    byId("strength").value = base.strength ?? 0.5;
    showStrength();
    await look();
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true);
  }
}

function calibration() {
  const { variant, ...others } = base;
  const chosen = { ...others, strength: byId("strength").value, layers: byId("layers").value, partition: byId("partition").value };
  return [variant, ...Object.entries(chosen).map(([name, value]) => `${name}=${value}`)].join(",");
}

async function look() {
  const input = byId("document").value;
  if (!input.trim()) {
    byId("result").hidden = true;
    return say("Paste a document, or load the example.");
  }
  if (!byId("segments").validity.valid || !byId("segments").value) {
    byId("result").hidden = true;
    return say("Parts must be a whole number from 2 to 24.", true);
  }
  say("Encoding…");
  try {
    const body = { input, calibration: calibration(), segments: Number(byId("segments").value) };
    if (byId("question").value.trim()) body.question = byId("question").value;
    show(await ask("v1/parts", body));
  } catch (error) {
    if (error.name === "AbortError") return;
    byId("result").hidden = true;
    say(error.message, true);
  }
}

function show(found) {
  const shares = found.parts.map((part) => part.plain.share);
  const least = Math.min(...shares), most = Math.max(...shares);
  const weight = (share) => Math.min(1, Math.max(0, (share - least) / Math.max(most - least, 1e-9)));
  const best = found.question && found.parts.reduce((top, part, at) => (part.question > found.parts[top].question ? at : top), 0);
  for (const side of ["plain", "calibrated"]) {
    byId(side).replaceChildren(...found.parts.map((part, at) => {
      const span = document.createElement("span"), share = document.createElement("b");
      span.className = at === best ? "part best" : "part";
      span.dir = "auto";
      span.style.setProperty("--weight", weight(part[side].share));
      share.textContent = percent(part[side].share);
      share.dir = "ltr";
      span.append(share, part.text);
      return span;
    }));
  }
  byId("rows").replaceChildren(...found.parts.map((part, at) => row(part, at)));
  for (const cell of document.querySelectorAll(".asked")) cell.hidden = !found.question;
  byId("least").textContent = percent(least);
  byId("most").textContent = `${percent(most)} of the plain vector`;
  byId("near").hidden = !found.question;
  if (found.question) {
    const [plain, calibrated] = found.question.map((value) => value.toFixed(3));
    byId("near").textContent = `Similarity of document and question: ${plain} plain, ${calibrated} calibrated. Most similar: part ${best + 1}.`;
  }
  byId("unread").textContent = found.unread ? `The last ${found.unread} of ${found.tokens} tokens are cut off.` : "";
  byId("result").hidden = false;
  say(`${found.parts.length} parts of ${found.tokens} tokens, ${found.calibration}`);
}

function row(part, at) {
  const line = document.createElement("tr"), head = document.createElement("th"), opening = document.createElement("bdi");
  opening.textContent = part.text.slice(0, 40).trim();
  head.scope = "row";
  head.append(`${at + 1}. `, opening, "…");
  line.append(head);
  const change = 100 * (part.calibrated.share - part.plain.share);
  const figures = [percent(part.plain.share), percent(part.calibrated.share), `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)}`];
  for (const figure of [...figures, part.question?.toFixed(3) ?? ""]) line.insertCell().textContent = figure;
  line.lastChild.className = "asked";
  return line;
}

const showStrength = () => { byId("strength-value").textContent = Number(byId("strength").value).toFixed(2); };

function later() {
  showStrength();
  clearTimeout(timer);
  timer = setTimeout(look, 200);
}

byId("form").addEventListener("input", later);
byId("form").addEventListener("submit", (event) => { event.preventDefault(); look(); });
byId("example").addEventListener("click", () => {
  byId("document").value = EXAMPLE;
  byId("question").value = "Who repaired the organ?";
  look();
});
byId("key-form").addEventListener("submit", (event) => { event.preventDefault(); key = byId("key").value.trim(); begin(); });
begin();
