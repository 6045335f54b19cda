#!/usr/bin/env python3
"""Cuts an encoder out of an ONNX network: everything that one inner tensor depends on.

The result takes images [n, 3, h, w] under the network's own input name, any n, h and w, and gives
"tokens" [n, tokens, hidden].
"""
import argparse

import onnx
from onnx import TensorProto, helper


def nodes_behind(graph, tensor):
    """The nodes that `tensor` is computed from, in the graph's own (topological) order."""
    producers = {output: node for node in graph.node for output in node.output}
    if tensor not in producers:
        raise SystemExit(f"no node of the network gives a tensor called {tensor!r}")
    needed = set()
    pending = [tensor]
    while pending:
        name = pending.pop()
        if name in producers and name not in needed:
            needed.update(producers[name].output)
            pending.extend(producers[name].input)
    return [node for node in graph.node if needed.intersection(node.output)]


def token_nodes(tensor, layout):
    """Nodes and constants that bring `tensor` into the form [n, tokens, hidden]."""
    if layout == "tokens":
        return [helper.make_node("Identity", [tensor], ["tokens"])], []
    # A feature map [n, c, h, w] becomes [n, c, h*w] and then one token a position.
    flat_shape = helper.make_tensor("flat_shape", TensorProto.INT64, [3], [0, 0, -1])
    return [
        helper.make_node("Reshape", [tensor, "flat_shape"], ["flat"]),
        helper.make_node("Transpose", ["flat"], ["tokens"], perm=[0, 2, 1]),
    ], [flat_shape]


def cut(network, tensor, layout):
    constants = {constant.name: constant for constant in network.graph.initializer}
    images = [i.name for i in network.graph.input if i.name not in constants]
    if len(images) != 1:
        raise SystemExit(f"the network has {len(images)} inputs, {images}; it should have one")

    tail, tail_constants = token_nodes(tensor, layout)
    nodes = nodes_behind(network.graph, tensor) + tail
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info(images[0], TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["n", "tokens", "hidden"])],
        [c for name, c in constants.items() if name in used] + tail_constants,
    )
    encoder = helper.make_model(
        graph, opset_imports=network.opset_import, ir_version=network.ir_version
    )
    onnx.checker.check_model(encoder)
    return encoder


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", help="ONNX file to cut from")
    parser.add_argument("tensor", help="inner tensor to cut at")
    parser.add_argument("layout", choices=["tokens", "feature-map"],
                        help="of that tensor: [n, tokens, hidden] or [n, hidden, h, w]")
    parser.add_argument("output", help="ONNX file to write")
    arguments = parser.parse_args()
    onnx.save(cut(onnx.load(arguments.network), arguments.tensor, arguments.layout),
              arguments.output)


if __name__ == "__main__":
    main()
