"""Elements of pass lists: passes that stand anywhere in a list, LLVM's own lists, and switches.

A list is a tuple of elements, each nested so that it is legal by itself. The passes are those of
LLVM 22 that change kernels, or prepare for those that do. Left out are passes that end the process
on some kernels, that write files, or that make code for debuggers and sanitizers.
"""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.codegen.passes.pipeline import DEFAULT, Pipeline

Elements = tuple[str, ...]

_FUNCTION = (
    "adce", "aggressive-instcombine", "alignment-from-assumptions", "bdce", "break-crit-edges",
    "callsite-splitting", "chr", "consthoist", "constraint-elimination",
    "correlated-propagation", "dce", "dfa-jump-threading", "div-rem-pairs", "dse", "early-cse",
    "early-cse<memssa>", "fix-irreducible", "flatten-cfg", "float2int", "gvn", "gvn-hoist",
    "gvn-sink", "infer-alignment", "instcombine<no-verify-fixpoint>", "instsimplify", "irce",
    "jump-threading", "lcssa", "libcalls-shrinkwrap", "load-store-vectorizer",
    "loop-data-prefetch", "loop-distribute", "loop-fusion", "loop-load-elim", "loop-simplify",
    "loop-sink", "loop-unroll<O2>", "loop-unroll<O3>", "loop-vectorize", "lower-expect",
    "lower-switch", "memcpyopt", "mergereturn", "mldst-motion", "nary-reassociate", "newgvn",
    "partially-inline-libcalls", "reassociate", "reg2mem", "sccp",
    "separate-const-offset-from-gep", "simplifycfg",
    "simplifycfg<hoist-common-insts;sink-common-insts>", "sink", "slp-vectorizer", "slsr",
    "sroa<modify-cfg>", "structurizecfg", "tailcallelim", "typepromotion", "vector-combine",
)  # fmt: skip
_LOOP = (
    "indvars", "licm", "lnicm", "loop-bound-split", "loop-deletion", "loop-flatten", "loop-idiom",
    "loop-instsimplify", "loop-interchange", "loop-predication", "loop-reduce", "loop-rotate",
    "loop-simplifycfg", "loop-term-fold", "loop-unroll-and-jam", "loop-unroll-full",
    "loop-versioning-licm", "simple-loop-unswitch<nontrivial>",
)  # fmt: skip
_MODULE = (
    "always-inline", "attributor", "called-value-propagation", "constmerge", "deadargelim",
    "globaldce", "globalopt", "hotcoldsplit", "inferattrs", "ipsccp", "mergefunc",
    "partial-inliner", "rpo-function-attrs",
)  # fmt: skip
_CALLS = ("argpromotion", "function-attrs", "inline")
_LOOP_SSA = frozenset(
    ("licm", "lnicm", "loop-versioning-licm", "simple-loop-unswitch<nontrivial>")
)

PIPELINES: Elements = tuple(f"default<{level}>" for level in ("O1", "O2", "O3", "Os", "Oz"))
"""Lists of LLVM's own."""
PASSES: Elements = (
    *(f"function({name})" for name in _FUNCTION),
    *(f"function({'loop-mssa' if name in _LOOP_SSA else 'loop'}({name}))" for name in _LOOP),
    *_MODULE,
    *(f"cgscc({name})" for name in _CALLS),
)
"""Single passes."""
SWITCHES: Elements = (
    "-disable-lsr", "-disable-cgp", "-disable-block-placement", "-disable-copyprop",
    "-disable-machine-cse", "-disable-machine-licm", "-disable-machine-sink",
    "-disable-peephole", "-disable-post-ra", "-disable-ssc", "-enable-aa-sched-mi",
    "-enable-misched=false", "-enable-subreg-liveness", "-aggressive-ext-opt",
    "-align-all-nofallthru-blocks=5", "-join-liveintervals=false", "-lsr-complexity-limit=1000",
    "-misched-postra", "-misched-regpressure=false", "-misched=ilpmax", "-misched=ilpmin",
    "-pre-RA-sched=linearize", "-pre-RA-sched=list-burr", "-pre-RA-sched=list-hybrid",
    "-pre-RA-sched=list-ilp", "-regalloc=basic", "-regalloc=pbqp", "-twoaddr-reschedule=false",
    "-unroll-allow-partial", "-unroll-threshold=0", "-unroll-threshold=1000", "-x86-early-ifcvt",
)  # fmt: skip
"""Switches that change the code of kernels, one of each name in a list."""


def text(elements: Sequence[str]) -> str:
    """The list as `passes=` takes it: passes in their order, then switches."""
    switches = [e for e in elements if e.startswith("-")]
    passes = ",".join(e for e in elements if not e.startswith("-")) or DEFAULT
    return " ".join((passes, *switches))


def elements_of(text: str) -> Elements:
    """The elements of a list that `passes=` takes."""
    pipeline = Pipeline.of(text)
    found, depth = [""], 0
    for sign in pipeline.passes:
        depth += (sign in "(<") - (sign in ")>")
        if sign == "," and not depth:
            found.append("")
        else:
            found[-1] += sign
    return (*found, *pipeline.switches)
