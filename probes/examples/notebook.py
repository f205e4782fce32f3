# %% [markdown]
# # A stall in a notebook
# Editors and Jupytext open this file as a notebook, by its `# %%` lines; `python` runs it too.
# With `backend="sim"` it needs no GPU: without it, the same cells measure the GPU of this machine.

# %%
from operator import itemgetter

import stallprobes

result = stallprobes.run("secondary-context-d2d", seconds=0.5, backend="sim")
# The last line of a cell shows a result: a table in a notebook, one line in a terminal.
result

# %% [markdown]
# `to_records()` is a list of flat dicts. Their names have the units, and all of them have the same columns, so
# `pandas.DataFrame(records)`, `polars.DataFrame(records)` and `pyarrow.Table.from_pylist(records)` take it as it is.

# %%
records = result.to_records()
waits = [row for row in records if row["role"] == "victim" and row["phase"] == "wait" and not row["op"]]
for row in sorted(waits, key=itemgetter("p50_ratio")):
    print(f"{row['variant']:34} {row['baseline_p50_ns']:>6} ns → {row['p50_ns']:>8} ns  ×{row['p50_ratio']}")

# %% [markdown]
# The cause of a stall and what helps stand in its record.

# %%
worst = max(waits, key=itemgetter("p50_ratio"))
print(worst["verdict"], worst["cause"], worst["remedy"], sep="\n")

# %% [markdown]
# A check measures every victim beside every aggressor. Here it has few of them.

# %%
matrix = stallprobes.check(victims=("launch", "d2d"), aggressors=("spin", "host-alloc-free"), quick=True, backend="sim")
matrix

# %%
stalled = {(row["victim"], row["aggressor"]) for row in matrix.to_records() if row["verdict"] in ("stalled", "starved")}
print(sorted(stalled))
