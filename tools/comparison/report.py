"""docs/benchmarks.md from measured rows, with its plots."""
import datetime
import importlib.metadata
import json
import math
import pathlib
import platform
import re
import statistics

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.hashsalt": "lazuli", "svg.fonttype": "none", "font.size": 9}
import matplotlib.pyplot as plt  # noqa: E402

PACKAGE = {"torch": "torch", "compile": "torch", "jax": "jax", "mlx": "mlx", "tiny": "tinygrad"}
LABEL = {"torch": "PyTorch", "compile": "torch.compile", "jax": "JAX", "mlx": "MLX",
         "tiny": "tinygrad", "lazuli": "lazuli"}
COLOUR = {"torch": "#c44e52", "compile": "#dd8452", "jax": "#8172b3", "mlx": "#937860",
          "tiny": "#8c8c8c", "lazuli": "#2a5caa"}


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", info)
    vectors = "AVX-512" if " avx512f" in info else "AVX2" if " avx2" in info else "no AVX2"
    return f"{model[1] if model else platform.machine()}, {info.count('processor')} CPUs, {vectors}"


def text_of(seconds):
    return (f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3
            else f"{seconds * 1e6:.3g} us")


def best_peer(row):
    peers = {who: t for who, t in row["seconds"].items() if who != "lazuli"}
    return min(peers.values()) if peers else None


def ratio(row):
    """How many times as fast as the best peer; None without either."""
    best, own = best_peer(row), row["seconds"].get("lazuli")
    return best / own if best and own else None


def mean_ratio(rows):
    logs = [math.log(r) for r in map(ratio, rows) if r]
    return math.exp(sum(logs) / len(logs)) if logs else None


def table(rows, peers):
    lines = ["| workload | floor | " + " | ".join(LABEL[p] for p in peers)
             + " | lazuli | of the floor | times the best peer |",
             "|---|---:|" + "---:|" * len(peers) + "---:|---:|---:|"]
    for row in rows:
        cells = []
        for who in [*peers, "lazuli"]:
            t = row["seconds"].get(who)
            mark = " (differs)" if who in row["differs"] else ""
            cells.append((text_of(t) if t else "-") + mark)
        own, floor, times = row["seconds"].get("lazuli"), row.get("floor"), ratio(row)
        cells.append(f"{100 * floor / own:.0f} %" if own and floor else "-")
        cells.append(f"{times:.2f}" if times else "-")
        floor_text = text_of(floor) if floor else "-"
        lines.append(f"| {row['name']} | {floor_text} | " + " | ".join(cells) + " |")
    return lines


def save(figure, path):
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def bars(rows, threads, path):
    rows = [(r["name"], ratio(r)) for r in rows if ratio(r)]
    figure, axes = plt.subplots(figsize=(7, 0.2 * len(rows) + 1))
    names, times = [n for n, _ in rows][::-1], [t for _, t in rows][::-1]
    axes.barh(names, [t - 1 for t in times], left=1,
              color=[COLOUR["lazuli"] if t >= 1 else COLOUR["torch"] for t in times])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.set_xlabel(f"times the best peer, {threads} thread{'s' * (threads > 1)}")
    axes.margins(y=0.01)
    save(figure, path)


def roofline(rows, threads, path):
    rows = [r for r in rows if r["flops"] and r["bytes"] and r["seconds"].get("lazuli")]
    if not rows:
        return
    peak, bandwidth = rows[0]["peak_gflops"], rows[0]["bandwidth_gbps"]
    figure, axes = plt.subplots(figsize=(7, 4))
    intensity = [r["flops"] / r["bytes"] for r in rows]
    speed = [r["flops"] / r["seconds"]["lazuli"] * 1e-9 for r in rows]
    edge = [min(intensity) / 2, peak / bandwidth, max(intensity) * 2]
    axes.plot(edge, [min(peak, bandwidth * e) for e in edge], color="black", linewidth=1)
    axes.scatter(intensity, speed, color=COLOUR["lazuli"], s=12)
    for row, x, y in zip(rows, intensity, speed):
        axes.annotate(row["name"], (x, y), fontsize=4, xytext=(2, 2), textcoords="offset points")
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s",
             title=f"{threads} thread{'s' * (threads > 1)}: peak {peak:.0f} GFLOP/s, "
                   f"memory {bandwidth:.1f} GB/s")
    save(figure, path)


def over_sizes(rows, threads, path):
    figure, axes = plt.subplots(figsize=(7, 3.5))
    for who in ("torch", "jax", "lazuli"):
        points = [(int(r["name"].split("_")[1]), r["seconds"][who]) for r in rows
                  if who in r["seconds"]]
        axes.plot([n for n, _ in points], [2e-9 * n ** 3 / t for n, t in points], marker=".",
                  label=LABEL[who], color=COLOUR[who])
    axes.axhline(rows[0]["peak_gflops"], color="black", linewidth=0.8)
    axes.axhline(rows[0]["fed_gflops"], color="black", linewidth=0.8, linestyle="--")
    axes.set(xscale="log", xlabel=f"n of an n by n matmul, f32, {threads} thread"
             f"{'s' * (threads > 1)}; the line is the peak, dashed with operands from L1",
             ylabel="GFLOP/s")
    axes.set_ylim(0)
    axes.legend()
    save(figure, path)


def write(results, peers, rounds, folder):
    plots = folder / "benchmarks"
    plots.mkdir(parents=True, exist_ok=True)
    shown = list(dict.fromkeys(PACKAGE[p] for p in peers))
    versions = ", ".join(f"{p} {importlib.metadata.version(p).split('+')[0]}" for p in shown)
    lines = [
        "# Benchmarks",
        "",
        "Written by `tools/compare`; run it to have the same of your machine.",
        "",
        f"- Machine: {machine()}",
        f"- Peers: {versions}; Python {platform.python_version()}",
        f"- Date: {datetime.date.today().isoformat()}",
        f"- Each figure is the median of {rounds} rounds, in which lazuli and its peers take turns. "
        "The floor is the larger of operations / FMA peak and bytes / read bandwidth, both "
        "measured beside each row; what stays in cache may pass it. Functions such as exp count "
        "as one operation. Results of all are compared by the sum of their magnitudes; \"differs\" "
        "marks one that is not PyTorch's. Steps of models start from random weights of their own, "
        "and for lazuli include the building of the graph.",
    ]
    for threads, result in results.items():
        rows, words = result["rows"], f"{threads} thread{'s' * (threads > 1)}"
        lines += ["", f"## {words}", ""]
        mean = mean_ratio(rows)
        if mean:
            ahead = sum(1 for r in rows if (ratio(r) or 0) >= 1)
            counted = sum(1 for r in rows if ratio(r))
            peak, fed = (statistics.median(r[limit] for r in rows if limit in r)
                         for limit in ("peak_gflops", "fed_gflops"))
            lines += [f"FMA peak {peak:.0f} GFLOP/s; {fed:.0f} with operands from L1, as often as "
                      "a register tile loads them.", ""]
            lines += [f"Geometric mean of the last column: {mean:.2f}; lazuli leads in {ahead} of "
                      f"{counted} rows.", ""]
        lines += table(rows, peers)
        name = f"benchmarks/{threads}_threads"
        bars(rows, threads, folder / f"{name}_peers.svg")
        lines += ["", f"![times the best peer]({name}_peers.svg)"]
        roofline(rows, threads, folder / f"{name}_roofline.svg")
        lines += ["", f"![roofline]({name}_roofline.svg)"]
        if result["sizes"]:
            over_sizes(result["sizes"], threads, folder / f"{name}_sizes.svg")
            lines += ["", f"![matmul over sizes]({name}_sizes.svg)"]
        failed = [f"{r['name']}: {LABEL[w]}: {e}" for r in rows for w, e in r["errors"].items()
                  if w == "lazuli"]
        lines += [""] * bool(failed) + [f"- {f}" for f in failed]
    (folder / "benchmarks.md").write_text("\n".join(lines) + "\n")
    (plots / "results.json").write_text(json.dumps(results, indent=1) + "\n")
