"""The styles of the report: light, dark and on paper."""

STYLE = """
:root {
  --ground: #ffffff; --card: #f7f8fa; --ink: #1f2430; --quiet: #5d6472; --line: #dfe3e8;
  --good: #0b6e4f; --bad: #b42318; --warn: #8a5300; --accent: #4b4fcf;
  --more: 217, 119, 6; --less: 37, 99, 235;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14161c; --card: #1d2028; --ink: #e8eaee; --quiet: #a3aab8; --line: #333845;
    --good: #4fd1a5; --bad: #ff8a7a; --warn: #f0b95b; --accent: #a5a8ff;
    --more: 245, 158, 11; --less: 96, 165, 250;
  }
  svg .curve, svg circle { filter: brightness(1.5); }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 14px/1.55 system-ui, sans-serif;
  overflow-wrap: anywhere; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 40px; }
h1 { margin: 0; font-size: 28px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 40px 0 16px; font-size: 20px; border-bottom: 1px solid var(--line); padding-bottom: 8px; }
h3 { margin: 24px 0 8px; font-size: 16px; overflow-wrap: anywhere; }
p { margin: 8px 0; }
.kind { color: var(--quiet); font-size: 12px; margin: 0 0 2px; }
.quiet, footer { color: var(--quiet); font-size: 14px; }
.sentence { font-size: 20px; }
.badge { border: 1px solid currentColor; border-radius: 99px; padding: 1px 8px; font-size: 14px; font-weight: 600; }
[data-kind="improved"] .badge, [data-kind="improving"] .badge { color: var(--good); }
[data-kind="collapsed"] .badge, [data-kind="exploiting the reward"] .badge,
[data-kind="diverged"] .badge, [data-kind="got worse"] .badge { color: var(--bad); }
[data-kind="nothing learned"] .badge { color: var(--warn); }
details { border: 1px solid var(--line); border-radius: 8px; margin: 8px 0; background: var(--card); }
summary { padding: 8px 16px; cursor: pointer; font-weight: 500; }
summary .quiet { font-weight: 400; }
details > :not(summary) { margin: 0 16px 16px; }
.level { font-size: 12px; font-weight: 600; border-radius: 4px; padding: 1px 8px; border: 1px solid currentColor; }
[data-level="alarm"] .level { color: var(--bad); }
[data-level="warning"] .level { color: var(--warn); }
[data-level="note"] .level { color: var(--accent); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 4px 16px; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
td q, td span, td b { overflow-wrap: anywhere; }
thead th { white-space: nowrap; color: var(--quiet); font-weight: 500; font-size: 12px; }
tbody th { font-weight: 400; }
.meaning { display: block; font-size: 12px; color: var(--quiet); }
.figures td { font-variant-numeric: tabular-nums; white-space: nowrap; }
.changed th, .changed td { font-weight: 600; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 12px; color: var(--quiet); }
q { quotes: none; font-family: ui-monospace, Menlo, Consolas, monospace; white-space: pre-wrap; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(300px, 100%), 1fr)); gap: 16px; }
figure { margin: 0; border: 1px solid var(--line); border-radius: 8px; padding: 8px 8px 4px; background: var(--card); }
figcaption { font-size: 14px; color: var(--quiet); }
figcaption b { color: var(--ink); font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
svg .grid { stroke: var(--line); }
svg .mark { stroke: var(--accent); stroke-dasharray: 3 3; }
svg .curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
article { margin: 16px 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(280px, 100%), 1fr)); gap: 16px; }
.pair > div { border: 1px solid var(--line); border-radius: 8px; padding: 8px 16px; background: var(--card); }
.answer { white-space: pre-wrap; overflow-wrap: anywhere; }
.a1 { background: rgba(var(--more), .14); } .a2 { background: rgba(var(--more), .26); }
.a3 { background: rgba(var(--more), .38); } .a4 { background: rgba(var(--more), .5); }
.b1 { background: rgba(var(--less), .12); } .b2 { background: rgba(var(--less), .22); }
.b3 { background: rgba(var(--less), .32); } .b4 { background: rgba(var(--less), .42); }
footer { margin-top: 40px; border-top: 1px solid var(--line); padding-top: 16px; }
@media print {
  :root { --ground: #fff; --card: #fff; --ink: #000; --quiet: #444; --line: #bbb; }
  body { font-size: 11pt; }
  main { max-width: none; padding: 0; }
  figure, article, tr, details { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .badge, .level, [class^="a"], [class^="b"] { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
