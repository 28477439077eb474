// Drive an agent with the client of npm's @agentclientprotocol/sdk, which validates every message.
// Usage: node npm_client.mjs SDK_FOLDER '{"command", "arguments", "environment", "project", "sessions"}'
// Prints one JSON object with what was seen.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [folder, given] = process.argv.slice(2);
const setup = JSON.parse(given);
const acp = await import(pathToFileURL(`${folder}/${setup.entry}`).href);
const agent = spawn(setup.command, setup.arguments, {
  cwd: setup.project,
  env: setup.environment,
  stdio: ["pipe", "pipe", "inherit"],
});
const ended = new Promise((resolve) => agent.on("exit", resolve));
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

let updates = [];
let asked = [];
let answer = () => ({ outcome: { outcome: "selected", optionId: "once" } });
let changed = () => {};
const until = async (condition) => {
  while (!condition()) await new Promise((resolve) => (changed = resolve));
};
const text = () =>
  updates
    .filter((update) => update.sessionUpdate === "agent_message_chunk")
    .map((update) => update.content.text)
    .join("");
const steps = () =>
  updates.map((update) => {
    if (update.sessionUpdate === "tool_call") return `call ${update.title.split(" ")[0]}`;
    if (update.sessionUpdate === "tool_call_update") return update.status;
    return update.sessionUpdate.replace("_message_chunk", "");
  });

const { agent: at, client: our } = acp.methods;
const app = acp
  .client({ name: "test" })
  .onNotification(our.session.update, ({ params }) => {
    updates.push(params.update);
    changed();
  })
  .onRequest(our.session.requestPermission, ({ params }) => {
    asked.push(params);
    changed();
    return answer();
  });

const seen = { replayed: {} };
const cwd = setup.project;
await app.connectWith(stream, async (ctx) => {
  const started = await ctx.request(at.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  seen.version = started.protocolVersion;
  seen.capabilities = Object.keys(started.agentCapabilities.sessionCapabilities);
  seen.listed = (await ctx.request(at.session.list, {})).sessions.map((session) => session.sessionId);
  for (const sessionId of setup.sessions) {
    updates = [];
    await ctx.request(at.session.load, { sessionId, cwd, mcpServers: [] });
    seen.replayed[sessionId] = steps();
    await ctx.request(at.session.close, { sessionId });
  }

  updates = [];
  const { sessionId } = await ctx.request(at.session.new, { cwd, mcpServers: [] });
  const prompt = (words) => ctx.request(at.session.prompt, { sessionId, prompt: [{ type: "text", text: words }] });
  seen.approved = (await prompt("make a file")).stopReason;
  seen.options = asked[0].options.map((option) => option.kind);
  seen.answer = text();

  updates = [];
  const running = prompt("count slowly");
  await until(() => text().length > 0);
  await ctx.notify(at.session.cancel, { sessionId });
  seen.cancelled = (await running).stopReason;

  await ctx.request(at.session.close, { sessionId });
  updates = [];
  await ctx.request(at.session.resume, { sessionId, cwd, mcpServers: [] });
  seen.resumed = updates.length;
  seen.continued = [(await prompt("still there?")).stopReason, text()];
  await ctx.request(at.session.delete, { sessionId });
  seen.left = (await ctx.request(at.session.list, {})).sessions.map((session) => session.sessionId);
  seen.error = await ctx.request("session/nonsense", {}).catch((error) => error.code);
});
agent.stdin.end();
seen.exit = await ended;
console.log(JSON.stringify(seen));
