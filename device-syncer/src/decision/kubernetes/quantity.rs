//! Amounts as Kubernetes writes them: `500m`, `1.5`, `512Mi`, `1e3`.

use serde_json::Value;

/// The most digits that an amount has here: more of them say nothing that a site would want to allow.
const DIGITS: usize = 20;

/// In thousandths, rounded up; `None` if it can't be read.
pub(super) fn milli(amount: &Value) -> Option<u128> {
    let text = match amount {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || digits.len() > DIGITS || fraction.contains('.') {
        return None;
    }
    let (factor, power) = unit(suffix)?;
    // The amount is digits × factor × 10^exponent.
    let exponent = 3 + power - i32::try_from(fraction.len()).ok()?;
    let scaled = digits.parse::<u128>().ok()?.checked_mul(factor)?;
    let ten = 10_u128.checked_pow(exponent.unsigned_abs())?;
    if exponent < 0 { Some(scaled.div_ceil(ten)) } else { scaled.checked_mul(ten) }
}

/// A factor and a power of ten.
fn unit(suffix: &str) -> Option<(u128, i32)> {
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|name| *name == suffix);
    if let Some(at) = binary {
        return Some((1024_u128.pow(u32::try_from(at).ok()? + 1), 0));
    }
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|name| *name == suffix);
    if let Some(at) = decimal {
        return Some((1, i32::try_from(at).ok()? * 3 - 9));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-18..=18).contains(&exponent).then_some((1, exponent))
}
