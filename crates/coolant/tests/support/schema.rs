//! Checks answers against what `/openapi.json` says of them.

use serde_json::{Map, Value};

/// Says where a value is not what its schema says; `Ok` if it is. Fields that the schema does not know are
/// an error: the description must not be behind the server.
pub fn check(api: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let mut known = Map::new();
    check_part(api, schema, value, "$", &mut known)?;
    unknown(&known, value, "$")
}

fn unknown(known: &Map<String, Value>, value: &Value, at: &str) -> Result<(), String> {
    let Some(fields) = value.as_object().filter(|_| !known.is_empty()) else { return Ok(()) };
    match fields.keys().find(|name| !known.contains_key(*name)) {
        Some(name) => Err(format!("{at}.{name} is not described")),
        None => Ok(()),
    }
}

/// Follows a reference into the components.
pub fn resolved<'a>(api: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(path) => api.pointer(path.trim_start_matches('#')).unwrap_or(&Value::Null),
        None => schema,
    }
}

fn check_part(
    api: &Value,
    schema: &Value,
    value: &Value,
    at: &str,
    known: &mut Map<String, Value>,
) -> Result<(), String> {
    let schema = resolved(api, schema);
    if let Some(all) = schema["allOf"].as_array() {
        return all.iter().try_for_each(|part| check_part(api, part, value, at, known));
    }
    for any in ["oneOf", "anyOf"] {
        if let Some(parts) = schema[any].as_array() {
            let fits = |part: &Value| check(api, part, value).is_ok();
            return if parts.iter().any(fits) { Ok(()) } else { Err(format!("{at} fits none: {value}")) };
        }
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    if !types.iter().any(|name| has_type(name, value)) {
        return Err(format!("{at} is no {types:?}: {value}"));
    }
    if let Some(names) = schema["enum"].as_array()
        && !names.contains(value)
    {
        return Err(format!("{at} is none of {names:?}: {value}"));
    }
    if let Some(items) = value.as_array() {
        for (i, item) in items.iter().enumerate() {
            let mut inner = Map::new();
            let at = format!("{at}[{i}]");
            check_part(api, &schema["items"], item, &at, &mut inner)?;
            unknown(&inner, item, &at)?;
        }
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{at}.{name} is missing"));
        }
    }
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        known.insert(name.clone(), Value::Null);
        let Some(field) = fields.get(name) else { continue };
        let mut inner = Map::new();
        let at = format!("{at}.{name}");
        check_part(api, part, field, &at, &mut inner)?;
        unknown(&inner, field, &at)?;
    }
    Ok(())
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
