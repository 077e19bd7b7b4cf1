//! Delayed scaling: scale and history after each step, as Transformer Engine has them.

use precast_lowbit::{AmaxOf, Delayed, DelayedRule, Format, Granularity, Matrix, Operand, ScaleRule, Stream};

use crate::data::{hexadecimal, text};

#[test]
fn scales_and_histories_are_the_recorded_ones() {
    let text = text("delayed.txt");
    let mut delayed: Option<Delayed> = None;
    let (mut runs, mut steps) = (0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["run", history, amax, largest, margin, skip_unused] = words[..] {
            let format = if largest == "448" { Format::E4M3 } else { Format::E5M2 };
            let rule = DelayedRule {
                history: history.parse().unwrap(),
                amax: if amax == "max" { AmaxOf::Largest } else { AmaxOf::MostRecent },
                margin: margin.parse().unwrap(),
                skip_unused: skip_unused.parse().unwrap(),
            };
            delayed = Some(Delayed::new(format, rule).unwrap());
            runs += 1;
            continue;
        }
        let delayed = delayed.as_mut().unwrap();
        let bits: Vec<u32> = words.into_iter().map(hexadecimal).collect();
        delayed.update(f32::from_bits(bits[0]));
        assert_eq!(delayed.scale().to_bits(), bits[1], "run {runs}: {line}");
        let history: Vec<u32> = delayed.history().iter().map(|x| x.to_bits()).collect();
        assert_eq!(history, bits[2..], "run {runs}: {line}");
        steps += 1;
    }
    assert_eq!((runs, steps), (12, 12 * 18));
}

#[test]
fn a_saved_state_continues_with_the_same_bits() {
    let rule = DelayedRule { history: 3, ..DelayedRule::DEFAULT };
    let new = || Delayed::new(Format::E5M2, rule).unwrap();
    let mut whole = new();
    [3.0, 9.0, 0.5].into_iter().for_each(|amax| whole.update(amax));
    let mut resumed = new().with_state(whole.scale(), whole.history()).unwrap();
    for amax in [0.25, 7.0, 0.0, 1.0] {
        whole.update(amax);
        resumed.update(amax);
        assert_eq!(whole, resumed);
    }
}

#[test]
fn a_tensor_is_quantized_by_the_scale_of_earlier_steps() {
    let mut delayed = Delayed::new(Format::E4M3, DelayedRule::DEFAULT).unwrap();
    delayed.update(1.75);
    let operand = Operand::new(Format::E4M3, Granularity::Tensor, ScaleRule::Delayed(DelayedRule::DEFAULT));
    let x = [1.0, -1.75, 100.0];
    let met = operand.quantize_by(Matrix::new(&x, 1, 3).unwrap(), delayed.scale(), Stream::new(0, "x", 0)).unwrap();
    // 1 * 256, -1.75 * 256, and the largest number.
    assert_eq!(met.codes(), [0x78, 0xfe, 0x7e]);
    assert_eq!(met.decode(), [1.0, -1.75, 1.75]);
}
