#!/usr/bin/env python3
"""Makes the toy models of models/: each 16x16 pixels are averaged and multiplied by a matrix of 3x8, to
tokens [batch, patches, 8]. They have what exported models have: two outputs, float16, fixed sizes,
inputs of text, external data. Needs onnx and numpy. The files are committed.
"""

import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MODELS = pathlib.Path(__file__).resolve().parent / "models"
CONFIG = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 48}, "resample": 2,
          "image_mean": 0.5, "image_std": 0.25}
MATRIX = (np.arange(24, dtype=np.float32).reshape(3, 8) - 11) / 16


def toy(element=TensorProto.FLOAT, shape=("batch", 3, "height", "width"), outputs=("last_hidden_state",),
        more_inputs=(), matrix=None):
    numpy_type = helper.tensor_dtype_to_np_dtype(element)
    hidden = MATRIX.shape[1]
    nodes = [
        helper.make_node("AveragePool", ["pixel_values"], ["means"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Transpose", ["means"], ["rows"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["rows", "matrix"], ["patches"]),
        helper.make_node("Shape", ["patches"], ["batch_size"], start=0, end=1),
        helper.make_node("Concat", ["batch_size", "flat"], ["token_shape"], axis=0),
        helper.make_node("Reshape", ["patches", "token_shape"], ["last_hidden_state"]),
        helper.make_node("ReduceMean", ["last_hidden_state"], ["pooler_output"], axes=[1], keepdims=0),
    ]
    initializers = [
        matrix or numpy_helper.from_array(MATRIX.astype(numpy_type), "matrix"),
        numpy_helper.from_array(np.array([-1, hidden], np.int64), "flat"),
    ]
    shapes = {"last_hidden_state": ["batch", "tokens", hidden], "pooler_output": ["batch", hidden]}
    graph = helper.make_graph(
        nodes, "toy",
        [helper.make_tensor_value_info("pixel_values", element, list(shape))]
        + [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in more_inputs],
        [helper.make_tensor_value_info(name, element, shapes[name]) for name in outputs],
        initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model


def write(name, model, files=None, config=CONFIG, path="model.onnx"):
    folder = MODELS / name
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / path)
    (folder / "preprocessor_config.json").write_text(json.dumps(config, indent=2) + "\n")
    for file, text in (files or {}).items():
        (folder / file).write_bytes(text.encode() if isinstance(text, str) else text)


def external():
    matrix = numpy_helper.from_array(MATRIX, "matrix")
    raw = matrix.raw_data
    matrix.ClearField("raw_data")
    matrix.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", str(len(raw)))):
        matrix.external_data.add(key=key, value=value)
    return toy(matrix=matrix), raw


def main():
    two = ("last_hidden_state", "pooler_output")
    write("toy", toy())
    write("two_outputs", toy(outputs=two))
    write("chosen_output", toy(outputs=two), {"embercache.toml": 'output = "pooler_output"\n'})
    write("half", toy(element=TensorProto.FLOAT16))
    write("fixed", toy(shape=(1, 3, 32, 48)))
    write("fixed_other", toy(shape=("batch", 3, 64, 64)))
    write("text_inputs", toy(more_inputs=("input_ids", "attention_mask")))
    write("any_size", toy(), config={**CONFIG, "do_resize": False})
    model, raw = external()
    write("external", model, {"weights.bin": raw})


if __name__ == "__main__":
    main()
