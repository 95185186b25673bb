"""How a report looks: on a screen, on a phone, in the dark, on paper."""

from __future__ import annotations

from evenspan.drawing import palette

_LIGHT = (
    "--page:#f3f5f8;--card:#ffffff;--ink:#1c2430;--soft:#4d5765;--rule:#d8dee6;--accent:#1a5ba6;--good:#0b6b5b;"
    "--bad:#a8380a;--shade:#eef2f7;"
)
_DARK = (
    "--page:#0f141a;--card:#171d25;--ink:#e8edf3;--soft:#adb8c5;--rule:#323c49;--accent:#7db8ff;--good:#4fd1b8;"
    "--bad:#ff9d5c;--shade:#202833;"
)

STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}{palette.variables(dark=False)}}}
@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}{palette.variables(dark=True)}}}}}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%;text-size-adjust:100%}}
body{{margin:0;background:var(--page);color:var(--ink);overflow-wrap:anywhere;
font:1rem/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif}}
header,main,footer{{max-width:68rem;margin:0 auto;padding:0 1.25rem}}
header{{padding-top:2.5rem}}
footer{{padding-bottom:3rem;color:var(--soft);font-size:.9rem}}
h1{{font-size:clamp(1.6rem,4.5vw,2.3rem);line-height:1.2;letter-spacing:-.015em;margin:.2rem 0 .6rem}}
h2{{font-size:1.45rem;line-height:1.3;letter-spacing:-.01em;margin:3rem 0 1rem}}
h3{{font-size:1.12rem;line-height:1.35;margin:2.2rem 0 .75rem}}
p{{margin:.5rem 0;max-width:46rem}}
.eyebrow{{margin:0;color:var(--accent);font-weight:650;font-size:.85rem;letter-spacing:.06em;text-transform:uppercase}}
.lead{{color:var(--soft);font-size:1.08rem}}
.card{{background:var(--card);border:1px solid var(--rule);border-radius:.75rem;padding:1.1rem 1.25rem;margin:0 0 1.1rem}}
.card>h3:first-child{{margin-top:.2rem}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,16rem),1fr));gap:.8rem;margin:0 0 1.1rem;
padding:0}}
.tile{{min-width:0;background:var(--shade);border-radius:.6rem;padding:.8rem 1rem;display:flex;flex-direction:column}}
.tile dt::first-letter{{text-transform:uppercase}}
.tile dt{{font-size:.86rem;color:var(--soft)}}
.tile dd{{margin:0}}
.tile .value{{font-size:1.5rem;font-weight:680;line-height:1.3;letter-spacing:-.01em}}
.tile .note{{font-size:.86rem;color:var(--soft);line-height:1.4}}
.good .value{{color:var(--good)}}
.bad .value{{color:var(--bad)}}
ul.findings{{list-style:none;margin:0;padding:0}}
ul.findings li{{padding:.65rem 0 .65rem 1rem;border-left:3px solid var(--rule);margin:.6rem 0}}
ul.findings li.good{{border-color:var(--good)}}
ul.findings li.bad{{border-color:var(--bad)}}
ul.findings strong{{display:block}}
.figures{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,25rem),1fr));gap:1.1rem;margin:0 0 1.1rem}}
figure{{margin:0;background:var(--card);border:1px solid var(--rule);border-radius:.75rem;padding:1rem 1rem .9rem;
min-width:0}}
h4{{font-size:1.02rem;margin:0 0 .6rem}}
figure.wide,figure.alone{{grid-column:1/-1}}
@media (min-width:50rem){{figure.alone{{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);column-gap:2rem}}
figure.alone h4{{grid-column:1/-1}}figure.alone figcaption{{align-self:center}}}}
.panels{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));gap:.75rem 1.25rem}}
.panel{{min-width:0;max-width:36rem;margin:0 auto;width:100%}}
.panel-title{{font-weight:600;font-size:.92rem;margin:0 0 .2rem;text-align:center}}
figure svg{{display:block;width:100%;height:auto;font-family:inherit;stroke-linejoin:round}}
figcaption{{font-size:.9rem;color:var(--soft);line-height:1.5;margin-top:.5rem}}
.scroll{{overflow-x:auto;margin:.3rem 0;-webkit-overflow-scrolling:touch}}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{{outline:2px solid var(--accent);outline-offset:2px}}
table{{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}}
table caption{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}
.caption{{color:var(--soft);font-size:.88rem;margin:.3rem 0 0;max-width:none}}
.scroll{{position:relative}}
th,td{{padding:.42rem .7rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap;vertical-align:top}}
th:first-child,td:first-child{{text-align:left;padding-left:0}}
tbody th{{font-weight:500}}
thead th{{font-weight:620;color:var(--soft)}}
.texts td:last-child,.texts th:first-child,.pairs td,.pairs th{{white-space:normal}}
.texts td:last-child,.pairs td{{text-align:start;overflow-wrap:anywhere}}
.texts th:last-child{{text-align:start}}
.texts td:last-child{{min-width:14rem}}
.texts th:first-child{{max-width:16rem;overflow-wrap:anywhere;min-width:7rem}}
.pairs th:first-child{{width:14rem;min-width:8rem}}
details{{margin:.4rem 0 0}}
summary{{cursor:pointer;color:var(--accent);font-size:.92rem;padding:.2rem 0}}
code,.code{{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace;font-size:.88em;
overflow-wrap:anywhere}}
.notes{{color:var(--soft);font-size:.92rem;padding-left:1.2rem}}
@media (max-width:40rem){{header,main,footer{{padding-left:.8rem;padding-right:.8rem}}header{{padding-top:1.4rem}}
.card,figure{{padding:.85rem .8rem}}.tiles{{grid-template-columns:1fr 1fr;gap:.6rem}}.tile{{padding:.7rem .75rem}}
.tile .value{{font-size:1.25rem}}
tbody th{{white-space:normal;min-width:7.5rem}}th,td{{padding:.42rem .5rem}}}}
@media print{{@page{{margin:14mm}}:root{{color-scheme:light;--page:#fff}}body{{font-size:10.5pt}}
header,main,footer{{max-width:none;padding:0}}.panels,.tile,.findings li,tr{{break-inside:avoid}}
h2,h3,h4,.caption,summary{{break-after:avoid}}.figures{{display:block}}figure{{margin-bottom:5mm}}.panel{{max-width:11cm}}
.panels{{grid-template-columns:repeat(auto-fit,minmax(6cm,1fr))}}.scroll{{overflow:visible}}
th,td{{white-space:normal;overflow-wrap:anywhere;padding:.25rem .4rem}}
details::details-content{{content-visibility:visible;display:block;
block-size:auto;opacity:1}}*{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}}}
"""
