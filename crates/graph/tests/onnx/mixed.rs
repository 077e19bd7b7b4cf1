//! Repeated fields of numbers, written as protobuf allows: one number a field, several in one, and both in turn. Values
//! are in the order of the file.

use precast::{DType, Tensor, policy::GraphPolicy};
use precast_graph::onnx::{OnnxConvertOptions, OnnxModel};

use super::{
    build::{self, FLOAT, Message, floats, graph, node, value},
    pb::Written,
};

/// A way in which a number is written.
#[derive(Clone, Copy)]
enum Form {
    Float,
    Double,
    Varint,
}

/// Appends 1 to 7 to a message: alone, two together, two alone, two together.
fn mixed(message: Message, field: u64, form: Form) -> Message {
    let bytes = |number: i64| match form {
        Form::Float => (number as f32).to_le_bytes().to_vec(),
        Form::Double => (number as f64).to_le_bytes().to_vec(),
        Form::Varint => vec![number as u8],
    };
    // The wire types of protobuf: 0 for a varint, 1 for eight bytes, 5 for four.
    let kind = match form {
        Form::Float => 5,
        Form::Double => 1,
        Form::Varint => 0,
    };
    let alone = |mut message: Message, number| {
        message.0.push((field << 3) as u8 | kind);
        message.0.extend(bytes(number));
        message
    };
    let together = |message: Message, numbers: [i64; 2]| message.bytes(field, numbers.map(bytes).concat());
    let message = together(alone(message, 1), [2, 3]);
    together(alone(alone(message, 4), 5), [6, 7])
}

fn output(model: &OnnxModel) -> Tensor {
    model.run(&[]).unwrap().remove(0).1
}

/// A model whose output is an initialiser.
fn of_tensor(tensor: &Message, elem: i64) -> OnnxModel {
    let nodes = [node("Identity", &["w"], &["y"], &[])];
    build::model(&graph(&nodes, std::slice::from_ref(tensor), &[], &[value("y", elem, &["7"])]), 18)
}

#[test]
fn tensors_have_their_numbers_in_order() {
    // Each field of numbers, with the element types that are stored in it.
    for (field, form, elems) in [
        (4, Form::Float, &[1i64][..]),
        (5, Form::Varint, &[2, 3, 4, 5, 6]),
        (7, Form::Varint, &[7]),
        (10, Form::Double, &[11]),
        (11, Form::Varint, &[12, 13]),
    ] {
        for &elem in elems {
            let tensor = mixed(Message::default().int(1, 7).int(2, elem).bytes(8, "w"), field, form);
            assert_eq!(output(&of_tensor(&tensor, elem)).to_f64(), [1., 2., 3., 4., 5., 6., 7.], "element type {elem}");
        }
    }
    // A shape of seven axes, and the axes of a transposition.
    let shape = mixed(Message::default(), 1, Form::Varint).int(2, FLOAT).bytes(8, "w");
    let tensor = shape.bytes(9, vec![0; 4 * 5040]);
    assert_eq!(output(&of_tensor(&tensor, FLOAT)).shape(), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn attributes_have_their_numbers_in_order() {
    for (name, field, form, kind) in [("value_floats", 7, Form::Float, 6), ("value_ints", 8, Form::Varint, 7)] {
        let attribute = mixed(Message::default().bytes(1, name), field, form).int(20, kind);
        let nodes = [node("Constant", &[], &["y"], &[attribute])];
        let model = build::model(&graph(&nodes, &[], &[], &[value("y", FLOAT, &["7"])]), 18);
        assert_eq!(output(&model).to_f64(), [1., 2., 3., 4., 5., 6., 7.], "{name}");
    }
}

/// Numbers from 1 to 7 are exact in 16 bits, so the converted weights are those bits in the same order.
#[test]
fn a_conversion_keeps_the_order() {
    let weights = mixed(Message::default().int(1, 7).int(1, 1).int(2, FLOAT).bytes(8, "w"), 4, Form::Float);
    let nodes = [node("MatMul", &["x", "w"], &["y"], &[])];
    let io = [value("x", FLOAT, &["n", "7"]), value("y", FLOAT, &["n", "1"])];
    let model = build::model(&graph(&nodes, &[weights], &io[..1], &io[1..]), 18);
    let bytes = model.plan(&GraphPolicy::named("onnx").unwrap()).unwrap().to_bytes(&OnnxConvertOptions::new()).unwrap();
    let expected: Vec<u8> = (1..=7u8).flat_map(|n| half::f16::from(n).to_le_bytes()).collect();
    assert_eq!(Written::of(&bytes).initialisers[0].1, ("float16", expected));
    // The output is the sum of 1 to 7 either way.
    let converted = OnnxModel::from_bytes(bytes).unwrap();
    let x = Tensor::ones(&[1, 7], DType::F32);
    assert_eq!(converted.run(&[("x", x)]).unwrap()[0].1.to_f64(), [28.0]);
}

/// Six bytes are not numbers of 32 or 64 bits: an error that names the field, not fewer numbers.
#[test]
fn a_part_of_a_number_is_an_error() {
    for (field, elem) in [(4, 1), (10, 11)] {
        let tensor = Message::default().int(1, 7).int(2, elem).bytes(8, "w").bytes(field, [0; 38]);
        let message = of_tensor(&tensor, elem).run(&[]).unwrap_err().to_string();
        assert!(message.contains(&format!("field {field} must be numbers of")), "{message}");
    }
    let nodes = [node("Constant", &[], &["y"], &[Message::default().bytes(1, "value_floats").bytes(7, [0; 6])])];
    let model = build::model(&graph(&nodes, &[floats("w", &[1], &[0.0])], &[], &[value("y", FLOAT, &["7"])]), 18);
    let message = model.run(&[]).unwrap_err().to_string();
    assert!(message.contains("field 7 must be numbers of 32 bits"), "{message}");
}
