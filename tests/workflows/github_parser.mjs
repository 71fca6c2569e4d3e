// GitHub's own parser and expressions: reads every workflow, and says which jobs an event starts.
// Usage: node github_parser.mjs TOOLS WORKFLOWS < plays.json; see test_github_parser.py. Without a play
// it parses.
import { readFileSync, readdirSync } from "node:fs";
import { register } from "node:module";
import { pathToFileURL } from "node:url";

// The packages import JSON in a way that Node 20 does not take.
const hook = `export async function load(url, context, next) {
  if (!url.endsWith(".json")) return next(url, context);
  const { readFile } = await import("node:fs/promises");
  const text = await readFile(new URL(url), "utf8");
  return { format: "module", shortCircuit: true, source: "export default " + text };
}`;
register("data:text/javascript," + encodeURIComponent(hook));

const [tools, folder] = process.argv.slice(2);
const from = (path) => import(pathToFileURL(`${tools}/node_modules/${path}`).href);
const { Lexer, Parser, Evaluator, data } = await from("@actions/expressions/dist/index.js");
const yaml = (await from("yaml/dist/index.js")).default;

const names = readdirSync(folder).filter((name) => name.endsWith(".yml")).sort();
const texts = Object.fromEntries(names.map((name) => [name, readFileSync(`${folder}/${name}`, "utf8")]));
const plays = JSON.parse(readFileSync(0, "utf8"));
const parser = plays.length ? null : await from("@actions/workflow-parser/dist/index.js");
const problems = {};
for (const name of plays.length ? [] : names) {
  const file = { name, content: texts[name] };
  const { context, value } = parser.parseWorkflow(file, new parser.NoOperationTraceWriter());
  const provider = {
    getFileContent: async (ref) => {
      const local = ref.path.replace(/^(\.\/)?\.github\/workflows\//, "");
      return { name: ref.path, content: texts[local] };
    },
  };
  const options = { fetchReusableWorkflowDepth: 1 };
  if (value) await parser.convertWorkflowTemplate(context, value, provider, options);
  problems[name] = context.errors.getErrors().map((error) => error.message);
}

function plain(value) {
  return JSON.parse(JSON.stringify(value), data.reviver);
}

const STATUS = ["success", "always", "cancelled", "failure"];
function evaluate(text, contexts, status) {
  const functions = STATUS.map((name) => ({
    name,
    description: "",
    minArgs: 0,
    maxArgs: 0,
    call: () => new data.BooleanData(status[name]),
  }));
  const { tokens } = new Lexer(text).lex();
  const tree = new Parser(tokens, Object.keys(contexts), functions).parse();
  const context = new data.Dictionary(
    ...Object.entries(contexts).map(([key, value]) => ({ key, value: plain(value) })),
  );
  const known = new Map(functions.map((one) => [one.name, one]));
  return new Evaluator(tree, context, known).evaluate();
}

const truthy = (value) => evaluate("!!x", { x: JSON.parse(JSON.stringify(value, data.replacer)) }, {}).value;
const unwrapped = (text) => String(text).trim().replace(/^\$\{\{([^]*)\}\}$/, "$1");

// Each job in its turn, by the rules of `needs`: what becomes of it, and its values.
function play({ workflow, contexts, outcomes = {}, outputs = {}, cancelled = false, ask = [] }) {
  const document = yaml.parse(texts[workflow]);
  const results = {};
  const waiting = new Map(Object.entries(document.jobs));
  while (waiting.size) {
    for (const [name, job] of waiting) {
      const needed = [job.needs ?? []].flat();
      if (needed.some((one) => !(one in results))) continue;
      const needs = Object.fromEntries(
        needed.map((one) => [one, { result: results[one], outputs: outputs[one] ?? {} }]),
      );
      const good = !cancelled && needed.every((one) => results[one] === "success");
      const bad = needed.some((one) => results[one] === "failure");
      const status = { success: good, always: true, cancelled, failure: bad };
      const text = unwrapped(job.if ?? "success()");
      const asks = STATUS.some((one) => text.includes(`${one}(`));
      const found = evaluate(asks ? text : `success() && (${text})`, { ...contexts, needs }, status);
      results[name] = truthy(found) ? (outcomes[name] ?? "success") : "skipped";
      waiting.delete(name);
    }
  }
  const answers = ask.map((text) => evaluate(text, contexts, {}).coerceString());
  return { results, answers };
}

console.log(JSON.stringify({ problems, plays: plays.map(play) }));
