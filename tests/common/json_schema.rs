//! JSON Schema 2020-12, as far as the schemas of this repository use it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// Returns a violation of a schema by a value: the part of JSON Schema 2020-12 that ours uses, and a panic for any
/// other.
pub fn fault(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    let keywords = match schema {
        Value::Bool(true) => return None,
        Value::Bool(false) => return Some(format!("{value} is not allowed")),
        schema => schema.as_object().unwrap(),
    };
    let number = |limit: &Value| value.as_f64().zip(limit.as_f64());
    let size = value.as_object().map_or(0, |map| map.len()) as u64;
    for (keyword, says) in keywords {
        let good = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "$defs" => true,
            "$ref" => {
                let target = root.pointer(says.as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
                if let Some(fault) = fault(root, target, value) {
                    return Some(fault);
                }
                true
            }
            "type" => match says.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "number" => value.is_number(),
                "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
                other => panic!("type {other}"),
            },
            "const" => value == says,
            "enum" => says.as_array().unwrap().contains(value),
            "required" => {
                let has = |key: &Value| value.get(key.as_str().unwrap()).is_some();
                !value.is_object() || says.as_array().unwrap().iter().all(has)
            }
            "dependentRequired" => says.as_object().unwrap().iter().all(|(key, needed)| {
                let has = |key: &str| value.get(key).is_some();
                !has(key) || needed.as_array().unwrap().iter().all(|key| has(key.as_str().unwrap()))
            }),
            "properties" => {
                for (key, inner) in value.as_object().into_iter().flatten() {
                    if let Some(fault) = says.get(key).and_then(|schema| fault(root, schema, inner)) {
                        return Some(format!("{key}: {fault}"));
                    }
                }
                true
            }
            "additionalProperties" => {
                assert_eq!(says, &json!(false));
                value.as_object().into_iter().flatten().all(|(key, _)| schema["properties"].get(key).is_some())
            }
            "items" => value.as_array().into_iter().flatten().all(|item| fault(root, says, item).is_none()),
            "uniqueItems" => value
                .as_array()
                .is_none_or(|items| items.iter().map(Value::to_string).collect::<BTreeSet<_>>().len() == items.len()),
            "oneOf" => says.as_array().unwrap().iter().filter(|case| fault(root, case, value).is_none()).count() == 1,
            "anyOf" => says.as_array().unwrap().iter().any(|case| fault(root, case, value).is_none()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= says.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= says.as_u64().unwrap()),
            "minimum" => number(says).is_none_or(|(met, limit)| met >= limit),
            "exclusiveMinimum" => number(says).is_none_or(|(met, limit)| met > limit),
            "maximum" => number(says).is_none_or(|(met, limit)| met <= limit),
            "exclusiveMaximum" => number(says).is_none_or(|(met, limit)| met < limit),
            "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 <= says.as_u64().unwrap()),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= says.as_u64().unwrap()),
            "minProperties" => !value.is_object() || size >= says.as_u64().unwrap(),
            "maxProperties" => size <= says.as_u64().unwrap(),
            other => panic!("the keyword {other} is not known to this test"),
        };
        if !good {
            return Some(format!("{value} is not right for {keyword}: {says}"));
        }
    }
    None
}
