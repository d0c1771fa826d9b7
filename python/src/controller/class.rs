//! A Python class as an algorithm: its parameters, and the construction of its halves.
//!
//! An algorithm's functions are plain functions, so they get their class from a parameter, which is
//! a number.

use super::ask::call_python;
use super::dials::{DialAdmission, Dials};
use super::halves::{FastHalf, Law, PythonController, SendAll, SlowHalf};
use super::seen::{self, ViewCache};
use crate::errors;
use leeward_controllers::breakwater;
use leeward_core::client::{ClientConfig, ClientParts};
use leeward_core::params::{ParamError, ParamKind, ParamSpec, Params, RawParam};
use leeward_core::registry::{Algorithm, Environment};
use leeward_core::server::{Admission, ServerHalves};
use leeward_core::units::{Nanos, parse_duration};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyType};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The parameter with the number of the class.
const CLASS: &str = "python_class";
/// Upper limit of the numbers of classes.
const CLASSES_MAX: u64 = 1 << 53;

/// A class and its declarations.
struct Class {
    slot: u64,
    label: String,
    class: Py<PyAny>,
    own: &'static [ParamSpec],
    defaults: Vec<(&'static str, RawParam)>,
}

static CLASSES: Mutex<BTreeMap<u64, Arc<Class>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

/// An algorithm of a scenario that is written in Python.
pub(crate) struct PyAlgorithm {
    class: Arc<Class>,
    /// Parameters in the scenario's section of this controller, as TOML.
    params: Vec<(String, String)>,
    name: &'static str,
    specs: &'static [ParamSpec],
    has_pool_law: bool,
    per_request: bool,
}

impl PyAlgorithm {
    pub(crate) fn new(
        py: Python<'_>,
        label: String,
        class: Py<PyAny>,
        params: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let bound = class.bind(py);
        let wrong = |problem: &str| errors::plain(py, "ControllerError", &format!("{label}: {problem}"));
        bound.cast::<PyType>().map_err(|_| wrong("not a class; accepted: a class made from leeward.Controller"))?;
        let has = |name: &str| bound.getattr(name).is_ok_and(|method| method.is_callable());
        let (has_pool_law, per_request, ticks) = (has("pool"), has("request"), has("tick"));
        if has_pool_law && (per_request || ticks) {
            return Err(wrong("has `pool` and another method; accepted: `pool` alone, or `tick`, `request` or both"));
        }
        if !has_pool_law && !per_request && !ticks {
            return Err(wrong("decides nothing; accepted: a class with `tick`, `request` or both, or with `pool`"));
        }
        let (own, defaults) = declared_params(bound, &wrong)?;
        let slot = NEXT.fetch_add(1, Ordering::Relaxed);
        let hidden = ParamSpec {
            name: CLASS,
            kind: ParamKind::Count { min: 0, max: CLASSES_MAX },
            default: "the class",
            doc: "number of the class in this process",
            tuning_values: &[],
        };
        let inherited = if has_pool_law { breakwater::ALGORITHM.params } else { &[] };
        let inherited = inherited.iter().filter(|spec| !own.iter().any(|mine| mine.name == spec.name)).copied();
        let specs = intern_specs(std::iter::once(hidden).chain(own.iter().copied()).chain(inherited).collect());
        let class = Arc::new(Class { slot, label: label.clone(), class, own, defaults });
        CLASSES.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, Arc::clone(&class));
        Ok(PyAlgorithm { class, params, name: intern_name(&label), specs, has_pool_law, per_request })
    }

    /// Returns a copy that shares the class.
    pub(crate) fn clone_ref(&self, _: Python<'_>) -> Self {
        PyAlgorithm { class: Arc::clone(&self.class), params: self.params.clone(), ..*self }
    }

    /// The number of the class.
    pub(crate) fn slot(&self) -> u64 {
        self.class.slot
    }

    /// Returns true if Python decides about each request.
    pub(crate) fn per_request(&self) -> bool {
        self.per_request
    }

    /// The registry's entry.
    pub(crate) fn algorithm(&self) -> Algorithm {
        Algorithm {
            name: self.name,
            summary: "a controller written in Python",
            source: "yours",
            params: self.specs,
            build_server: |params, environment| class_of(params)?.server(params, environment),
            build_client: if self.has_pool_law { breakwater::ALGORITHM.build_client } else { |_, _| Ok(client()) },
        }
    }

    /// The controller's section in the scenario file.
    pub(crate) fn section(&self) -> String {
        let params: String = self.params.iter().map(|(name, value)| format!(", {name} = {value}")).collect();
        let (name, slot) = (self.name, self.class.slot);
        format!("\n[[controller]]\nname = \"{name}\"\nparams = {{ {CLASS} = {slot}{params} }}\n")
    }
}

impl Drop for PyAlgorithm {
    /// Removes the class with the last reference: the list of classes holds the other one.
    fn drop(&mut self) {
        if Arc::strong_count(&self.class) == 2 {
            let removed = CLASSES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.class.slot);
            drop(removed);
        }
    }
}

fn client() -> ClientParts {
    ClientParts { half: Box::new(SendAll), config: ClientConfig::default() }
}

fn class_of(params: &Params) -> Result<Arc<Class>, ParamError> {
    let slot = params.count(CLASS, 0);
    let found = CLASSES.lock().unwrap_or_else(PoisonError::into_inner).get(&slot).cloned();
    found.ok_or_else(|| ParamError::Conflict("the controller's class is gone".into()))
}

impl Class {
    /// Makes a Python object, and the halves that call it.
    fn server(&self, params: &Params, environment: &Environment) -> Result<ServerHalves, ParamError> {
        let object = Arc::new(call_python(self.slot, |py| self.object(py, params, environment)));
        if object.pool.is_some() {
            return breakwater::server_with_law(
                Box::new(Law { object, signals: ViewCache::default(), pool: ViewCache::default() }),
                params,
                environment,
            );
        }
        let dials = Arc::new(Dials::open());
        let fast = || -> Box<dyn Admission> {
            let base = DialAdmission { dials: Arc::clone(&dials) };
            match object.request {
                Some(_) => Box::new(FastHalf { object: Arc::clone(&object), base, arrival: ViewCache::default() }),
                None => Box::new(base),
            }
        };
        let cores = (0..environment.cores).map(|_| fast()).collect();
        Ok(ServerHalves { cores, control: Box::new(SlowHalf { object, dials, signals: ViewCache::default() }) })
    }

    fn object(&self, py: Python<'_>, params: &Params, environment: &Environment) -> PyResult<PythonController> {
        let arguments = PyDict::new(py);
        for (spec, (name, default)) in self.own.iter().zip(&self.defaults) {
            let set = params.pairs().find(|(set, _)| set == name).map(|(_, raw)| raw);
            let raw = set.as_ref().unwrap_or(default);
            match (spec.kind, raw) {
                (ParamKind::Duration { .. }, RawParam::Text(text)) => {
                    arguments.set_item(name, parse_duration(text).map_or(f64::NAN, Nanos::as_micros_f64))?;
                }
                (ParamKind::Choice(_), RawParam::Text(word)) => arguments.set_item(name, word == "on")?,
                (_, RawParam::Text(text)) => arguments.set_item(name, text)?,
                (_, RawParam::Number(number)) => arguments.set_item(name, number)?,
                (_, RawParam::Integer(number)) => arguments.set_item(name, number)?,
                (_, RawParam::Switch(on)) => arguments.set_item(name, on)?,
            }
        }
        let object = self.class.bind(py).call((seen::Environment::of(environment),), Some(&arguments))?;
        let method = |name: &str| object.getattr(name).ok().filter(|method| method.is_callable()).map(Bound::unbind);
        let wrong = |problem: String| errors::plain(py, "ControllerError", &format!("{}: {problem}", self.label));
        let period: String = object
            .getattr("period")?
            .extract()
            .map_err(|_| wrong("period: accepted: a duration such as \"1ms\"".into()))?;
        let period = parse_duration(&period).ok().filter(|period| period.0 >= 1_000);
        let period = period.ok_or_else(|| wrong("period: accepted: a duration from 1us, such as \"1ms\"".into()))?;
        Ok(PythonController {
            slot: self.slot,
            label: self.label.clone(),
            tick: method("tick"),
            request: method("request"),
            pool: method("pool"),
            period,
        })
    }
}

/// The parameters that a class declares in its attribute `params`: specifications and defaults.
#[expect(clippy::type_complexity, reason = "two lists of one length")]
fn declared_params(
    class: &Bound<'_, PyAny>,
    wrong: &dyn Fn(&str) -> PyErr,
) -> PyResult<(&'static [ParamSpec], Vec<(&'static str, RawParam)>)> {
    let Ok(given) = class.getattr("params") else { return Ok((&[], Vec::new())) };
    let given = given.cast::<PyDict>().map_err(|_| wrong("params: accepted: a dict of names and defaults"))?.clone();
    let (mut specs, mut defaults) = (Vec::new(), Vec::new());
    for (name, default) in given.iter() {
        let name: String = name.extract().map_err(|_| wrong("params: names are texts"))?;
        if class.hasattr(name.as_str())? {
            return Err(wrong(&format!(
                "params: {name}: the class has an attribute of this name; accepted: another name"
            )));
        }
        let (kind, raw) = if default.is_instance_of::<PyBool>() {
            (ParamKind::SWITCH, RawParam::Switch(default.extract()?))
        } else if default.is_instance_of::<PyInt>() {
            let number = default.extract().map_err(|_| wrong(&format!("params: {name}: {default} is out of range")))?;
            (ParamKind::Count { min: 0, max: CLASSES_MAX }, RawParam::Integer(number))
        } else if let Ok(number) = default.extract::<f64>() {
            (ParamKind::Number { min: -1e12, max: 1e12 }, RawParam::Number(number))
        } else if let Some(text) =
            default.cast::<PyString>().ok().map(ToString::to_string).filter(|text| parse_duration(text).is_ok())
        {
            (ParamKind::ANY_DURATION, RawParam::Text(text))
        } else {
            return Err(wrong(&format!(
                "params: {name}: accepted: a number, True or False, or a duration such as \"80us\""
            )));
        };
        if matches!(raw, RawParam::Number(number) if !number.is_finite()) {
            return Err(wrong(&format!("params: {name}: accepted: a finite number")));
        }
        let name = intern_name(&name);
        specs.push(ParamSpec {
            name,
            kind,
            default: "the class's",
            doc: "a parameter of a class in Python",
            tuning_values: &[],
        });
        defaults.push((name, raw));
    }
    Ok((intern_specs(specs), defaults))
}

/// Interns a name for the lifetime of the process, as the registry requires.
fn intern_name(name: &str) -> &'static str {
    static INTERNED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = interned.iter().find(|known| **known == name) {
        return known;
    }
    let new: &'static str = Box::leak(name.to_string().into_boxed_str());
    interned.push(new);
    new
}

/// Interns specifications for the lifetime of the process.
fn intern_specs(specs: Vec<ParamSpec>) -> &'static [ParamSpec] {
    static INTERNED: Mutex<Vec<&'static [ParamSpec]>> = Mutex::new(Vec::new());
    let mut interned = INTERNED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = interned.iter().find(|known| **known == specs) {
        return known;
    }
    let new: &'static [ParamSpec] = Box::leak(specs.into_boxed_slice());
    interned.push(new);
    new
}
