//! `formula!`: arithmetic whose errors are carried to its end.

use proc_macro2::{Span, TokenStream as Tokens};
use quote::{ToTokens, quote, quote_spanned};
use syn::{BinOp, Expr, ExprBinary, ExprCall, ExprLit, ExprMethodCall, Lit, LitFloat, UnOp, spanned::Spanned};

/// Returns an expression for a `Result` of the formula.
pub fn expand(formula: &Expr) -> Tokens {
    let value = value(formula);
    quote!(::precast::__derive::formula::carried(|| ::core::result::Result::Ok(#value)))
}

/// Generates the value of a part of a formula: a tensor or an `f64`.
fn value(part: &Expr) -> Tokens {
    match part {
        Expr::Paren(inner) => value(&inner.expr),
        Expr::Group(inner) => value(&inner.expr),
        Expr::Binary(binary) if is_arithmetic(&binary.op) => {
            let ExprBinary { left, op, right, .. } = binary;
            let (left, right) = (value(left), value(right));
            placed(quote_spanned!(op.span()=> (#left) #op (#right)), op.span(), part)
        }
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => {
            let (op, inner) = (&unary.op, value(&unary.expr));
            placed(quote_spanned!(op.span()=> #op (#inner)), op.span(), part)
        }
        Expr::MethodCall(call) => placed(method(call), call.method.span(), part),
        // Variables and fields are not moved.
        Expr::Path(_) | Expr::Field(_) | Expr::Index(_) => term(&quote_spanned!(part.span()=> &#part), part.span()),
        Expr::Lit(ExprLit { lit, .. }) => number(lit),
        Expr::Call(call) => placed(function(call), part.span(), part),
        // A `?` that is written is not asked for twice.
        Expr::Try(inner) => value(&inner.expr),
        _ => term(&part.to_token_stream(), part.span()),
    }
}

/// Generates a number, which is an f64 unless it says otherwise: nothing else would decide its type.
fn number(lit: &Lit) -> Tokens {
    let digits = match lit {
        Lit::Int(lit) if lit.suffix().is_empty() => lit.base10_digits(),
        Lit::Float(lit) if lit.suffix().is_empty() => lit.base10_digits(),
        other => return term(&other.to_token_stream(), other.span()),
    };
    LitFloat::new(&format!("{digits}f64"), lit.span()).to_token_stream()
}

/// Generates a call whose receiver and arguments may be parts of a formula, without the conversion of its result.
fn method(call: &ExprMethodCall) -> Tokens {
    let ExprMethodCall { receiver, method, turbofish, args, .. } = call;
    let receiver = receiver_of(receiver);
    let args = args.iter().map(argument);
    quote_spanned!(method.span()=> #receiver.#method #turbofish(#(#args),*))
}

fn function(call: &ExprCall) -> Tokens {
    let (function, args) = (&call.func, call.args.iter().map(argument));
    quote_spanned!(call.span()=> #function(#(#args),*))
}

fn receiver_of(receiver: &Expr) -> Tokens {
    match inside(receiver) {
        Expr::Binary(binary) if is_arithmetic(&binary.op) => value(receiver),
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => value(receiver),
        // A call may return anything, such as a shape; only a `Result` is opened.
        Expr::MethodCall(call) => opened(&method(call), call.method.span(), receiver),
        Expr::Call(call) => opened(&function(call), receiver.span(), receiver),
        Expr::Try(inner) => receiver_of(&inner.expr),
        _ => receiver.to_token_stream(),
    }
}

/// Generates an argument: what is handed over by reference may be a part of a formula; all else is plain Rust.
fn argument(argument: &Expr) -> Tokens {
    let Expr::Reference(reference) = argument else { return argument.to_token_stream() };
    if reference.mutability.is_some() {
        return argument.to_token_stream();
    }
    let inner = receiver_of(&reference.expr);
    quote_spanned!(argument.span()=> &#inner)
}

fn inside(expression: &Expr) -> &Expr {
    match expression {
        Expr::Paren(inner) => inside(&inner.expr),
        Expr::Group(inner) => inside(&inner.expr),
        other => other,
    }
}

fn is_arithmetic(op: &BinOp) -> bool {
    matches!(op, BinOp::Add(_) | BinOp::Sub(_) | BinOp::Mul(_) | BinOp::Div(_))
}

/// Generates the conversion of a variable, a number or another expression.
fn term(tokens: &Tokens, span: Span) -> Tokens {
    quote_spanned!(span=> ::precast::__derive::formula::Term::term(#tokens)?)
}

/// Generates the conversion of a computed value. An error names the place and the part of the formula.
fn placed(tokens: Tokens, at: Span, of: &Expr) -> Tokens {
    let place = place(at, of);
    quote_spanned!(of.span()=> ::precast::__derive::formula::placed(#tokens, #place)?)
}

fn opened(tokens: &Tokens, at: Span, of: &Expr) -> Tokens {
    let place = place(at, of);
    quote_spanned!(of.span()=> {
        #[allow(unused_imports)]
        use ::precast::__derive::formula::IsPlain as _;
        ::precast::__derive::formula::Opened(#tokens).open(#place)?
    })
}

fn place(at: Span, of: &Expr) -> Tokens {
    let span = at.unwrap();
    let (file, line, column, text) = (span.file(), span.line(), span.column(), text(of));
    quote!(&::precast::__derive::formula::Place { file: #file, line: #line, column: #column, text: #text })
}

/// Returns an expression as it is usually spaced.
fn text(of: &Expr) -> String {
    let mut text = of.to_token_stream().to_string();
    for (from, to) in
        [(" . ", "."), (" (", "("), ("( ", "("), (" )", ")"), ("& ", "&"), (" ,", ","), (" [", "["), (" :: ", "::")]
    {
        text = text.replace(from, to);
    }
    for op in ["+", "-", "*", "/"] {
        text = text.replace(&format!(" {op}("), &format!(" {op} ("));
    }
    text
}
