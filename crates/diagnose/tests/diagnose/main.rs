//! Diagnoses of steps and networks with known faults.

mod choices;
mod lint_cures;
mod lint_far;
mod lint_operands;
mod threads;
mod trust;
mod tune_operands;
