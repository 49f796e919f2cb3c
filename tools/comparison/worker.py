"""One peer in a process of its own, on so many CPUs: reads commands, answers a line of JSON each.

  load NAME<tab>EXPRESSION   builds the workload and runs it for the first time
  go SECONDS                 repeats it and gives the median and the least time
"""
import json
import os
import statistics
import sys
import time


def build_expression(peer, name, expression):
    import numpy
    from comparison.spellings import inputs, spelling
    text = spelling(name, expression, peer)
    if text is None:
        raise NotImplementedError(f"{name} is not spelled for {peer}")
    arrays = inputs(expression, numpy)
    names = ", ".join(arrays)
    if peer in ("torch", "compile"):
        import torch
        function = eval(f"lambda {names}: {text}", {"torch": torch, "F": torch.nn.functional})
        function = torch.compile(function) if peer == "compile" else function
        values = [torch.from_numpy(a) for a in arrays.values()]

        def run():
            with torch.inference_mode():
                return function(*values)
    elif peer == "jax":
        import jax
        import jax.numpy as jnp
        function = jax.jit(eval(f"lambda {names}: {text}", {"jax": jax, "jnp": jnp}))
        values = [jnp.asarray(a) for a in arrays.values()]

        def run():
            return function(*values).block_until_ready()
    elif peer == "mlx":
        import mlx.core as mx
        import mlx.nn as nn
        function = mx.compile(eval(f"lambda {names}: {text}", {"mx": mx, "nn": nn}))
        values = [mx.array(a) for a in arrays.values()]

        def run():
            result = function(*values)
            mx.eval(result)
            return result
    else:
        from tinygrad import Device, Tensor, TinyJit
        plain = eval(f"lambda {names}: {text}", {"Tensor": Tensor})
        function = TinyJit(lambda *a: plain(*a).realize())
        values = [Tensor(a).realize() for a in arrays.values()]

        def run():
            result = function(*values)
            Device[Device.DEFAULT].synchronize()
            return result
    return run, lambda r: r.numpy() if hasattr(r, "numpy") else numpy.asarray(r)


class State:
    def __init__(self, peer):
        self.peer = peer
        self.run = None

    def load(self, name, expression):
        start = time.perf_counter()
        value = None
        if expression:
            self.run, get = build_expression(self.peer, name, expression)
        else:
            from comparison import models
            self.run, get = models.build(self.peer, name), None
        result = self.run()
        first = time.perf_counter() - start
        self.run()
        if get is not None:
            import numpy
            v = numpy.asarray(get(result), dtype="float64")
            value = float(numpy.nansum(numpy.abs(v)))
        return {"first": first, "value": value}

    def go(self, seconds):
        times = []
        end = time.perf_counter() + seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            self.run()
            times.append(time.perf_counter() - start)
        return {"median": statistics.median(times), "min": min(times)}


def main(peer, threads):
    os.sched_setaffinity(0, set(range(threads)))
    os.environ |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                   "JAX_PLATFORMS": "cpu"}
    if peer in ("torch", "compile"):
        import torch
        torch.set_num_threads(threads)
    answers = os.fdopen(os.dup(1), "w")  # what peers print must not stand among the answers
    os.dup2(2, 1)
    state = State(peer)
    for line in sys.stdin:
        command, _, rest = line.rstrip("\n").partition(" ")
        try:
            answer = state.load(*rest.split("\t")) if command == "load" else state.go(float(rest))
        except Exception as error:  # a peer's own refusal is a row of the table
            answer = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
