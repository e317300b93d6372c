// Tells the city what this program is about. Outside of a city it does nothing.
const KINDS = {
  "session.created": "hook.session_start",
  "session.idle": "hook.turn_end",
  "permission.asked": "hook.attention",
};

export const GasCity = async ({ $ }) => ({
  event: async ({ event }) => {
    const kind = KINDS[event.type];
    const agent = process.env.GC_AGENT;
    if (!kind || !agent) return;
    const gc = process.env.GC_BIN || "gc";
    await $`${gc} event emit ${kind} --subject ${agent}`.quiet().nothrow();
  },
});
