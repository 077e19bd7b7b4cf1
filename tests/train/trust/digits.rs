//! Lost digits without a reference: two passes with stochastic rounding must name the cell of each planted fault.

use precast::{no_grad, shadow::Digits};

use super::{
    cases::{Case, plain},
    read,
};

#[test]
fn lost_digits_are_found_without_a_reference() {
    let (mut lost, mut right, mut quiet, mut called) = (0, 0, 0, 0);
    for value in read("faults.jsonl") {
        let case = Case(&value);
        let truth = &value["truth"];
        if truth["kind"] != "lost" && truth["kind"] != "none" {
            continue;
        }
        let net = case.lowered(|policy| policy).unwrap();
        let digits = Digits::of(&net, |net| no_grad(|| net.call(&case.input(0)))).unwrap();
        let cell = digits.lost.as_ref().map(|lost| plain(&lost.cell));
        if truth["kind"] == "none" {
            quiet += 1;
            called += usize::from(cell.is_some());
            if let Some(found) = &digits.lost {
                println!("{}: quiet, but {found}", case.id());
            }
            continue;
        }
        lost += 1;
        match cell {
            Some(cell) if truth["edge"]["cell"] == cell.as_str() => right += 1,
            _ => println!("{}: {digits}; truth {}", case.id(), truth["edge"]),
        }
    }
    println!("trust digits: {right} of {lost} lost, {called} of {quiet} quiet called");
    assert!(lost > 0 && quiet > 0);
    assert!(right as f64 >= 0.95 * lost as f64, "{right} of {lost}");
    assert!(called as f64 <= 0.05 * quiet as f64, "{called} of {quiet}");
}
