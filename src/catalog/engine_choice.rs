//! Which engine profile stands for an engine of some version and date on some device.

use super::{Catalog, CatalogError};
use crate::engine::Engine;
use crate::hardware::Device;
use crate::profile::folded;
use std::cmp::Reverse;
use std::sync::Arc;

/// What is known of the engine that a profile is wanted for.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct EngineQuery<'a> {
    /// Name of the engine (`vllm`, `llama.cpp`, `tensorrt-llm`, ...), or slug or alias of a profile.
    pub name: &'a str,
    /// Version as its makers write it: `0.6.3`, `1.2.0rc6`, `b7948`.
    pub version: Option<&'a str>,
    /// When it ran, from the year on: `2025`, `2025-07`.
    pub date: Option<&'a str>,
    /// The device it runs on, which decides the backend of engines that have several.
    pub device: Option<&'a Device>,
    /// The backend, where it is not the device vendor's own: `cuda`, `metal`, `rocm`, `vulkan`, `cpu`.
    pub backend: Option<&'a str>,
}

/// An engine profile, and what was assumed in choosing it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EngineChoice {
    /// The profile.
    pub engine: Arc<Engine>,
    /// Slug of the profile that would have been the best choice: that of `engine`, if the catalog has it.
    pub wanted: String,
    /// What was assumed, in a sentence.
    pub note: String,
}

/// The profile for an engine of a version (or, where the version says nothing, of a date) on a device.
///
/// # Formula
/// Each profile stands for the versions from its first one up to the next profile's first one. Without version and date the newest profile
/// counts. Where the catalog lacks the best profile, the nearest one of the same engine and backend is taken, then `serving`,
/// then `ideal`.
///
/// # Errors
/// [`CatalogError`] when the chosen profile has a mistake in it.
///
/// ```
/// use llm_roofline::catalog::{Catalog, engine_for};
///
/// let choice = engine_for(Catalog::embedded(), "vLLM", Some("0.6.3"), None, None)?;
/// assert_eq!(choice.wanted, "vllm-2024");
/// assert!(choice.note.starts_with("version 0.6.3: profile "));
/// # Ok::<(), llm_roofline::catalog::CatalogError>(())
/// ```
pub fn engine_for(
    catalog: &Catalog,
    name: &str,
    version: Option<&str>,
    date: Option<&str>,
    device: Option<&Device>,
) -> Result<EngineChoice, CatalogError> {
    EngineQuery { version, date, device, ..EngineQuery::new(name) }.choose(catalog)
}

impl<'a> EngineQuery<'a> {
    /// An engine of which only the name is known.
    pub const fn new(name: &'a str) -> Self {
        Self { name, version: None, date: None, device: None, backend: None }
    }

    /// The profile, as for [`engine_for`].
    ///
    /// # Errors
    /// [`CatalogError`] when the chosen profile has a mistake in it.
    pub fn choose(&self, catalog: &Catalog) -> Result<EngineChoice, CatalogError> {
        let name = folded(self.name).replace('.', "");
        let Some(family) = FAMILIES.iter().find(|family| family.names.contains(&name.as_str())) else {
            return match existing(catalog, self.name)? {
                Some(engine) => {
                    let note = format!("profile {}", engine.slug);
                    Ok(EngineChoice { wanted: engine.slug.clone(), engine, note })
                }
                None if self.device.is_some_and(is_personal) => {
                    let note = format!("`{}` is no known engine, llama.cpp stands for it", self.name);
                    let choice = Self { name: "llama.cpp", version: None, ..*self }.choose(catalog)?;
                    Ok(EngineChoice { note: format!("{note}: {}", choice.note), ..choice })
                }
                None => first_existing(catalog, vec![DEFAULT.into()], format!("`{}` is no known engine", self.name)),
            };
        };
        let (index, reason) = self.era(family.eras);
        let mut eras: Vec<(usize, &Era)> = family.eras.iter().enumerate().collect();
        // The nearest first; of two equally near ones the newer.
        eras.sort_by_key(|(other, _)| (other.abs_diff(index), Reverse(*other)));
        let slugs = eras.iter().map(|(_, era)| self.slug(family, era)).collect();
        first_existing(catalog, slugs, reason)
    }

    /// The era that version or date point to, and why.
    fn era(&self, eras: &[Era]) -> (usize, String) {
        let last_where = |begun: &dyn Fn(&Era) -> bool| eras.iter().rposition(begun).unwrap_or(0);
        let version = self.version.and_then(Version::read).filter(|version| version.orders(eras));
        if let (Some(text), Some(version)) = (self.version, version) {
            return (last_where(&|era| version.is_at_least(era)), format!("version {}", text.trim()));
        }
        if let Some(month) = self.date.and_then(month) {
            let date = self.date.unwrap_or_default();
            return (last_where(&|era| era.since <= month), format!("no version known, dated {date}"));
        }
        (eras.len().saturating_sub(1), "version and date unknown, the newest is assumed".into())
    }

    fn slug(&self, family: &Family, era: &Era) -> String {
        match family.backends {
            [] => era.slug.into(),
            backends => era.slug.replace("{}", self.backend_among(backends)),
        }
    }

    /// The backend that was named, or else the one of the device's vendor; the first one if the engine has neither.
    fn backend_among(&self, backends: &[&'static str]) -> &'static str {
        let named = self.backend.map(str::to_lowercase);
        let wanted = match (named.as_deref(), self.device) {
            (Some("hip"), _) => "rocm",
            (Some("sycl" | "opencl"), _) => "vulkan",
            (Some("blas"), _) => "cpu",
            (Some(named), _) => named,
            (None, Some(device)) if device.generation() == "cpu" => "cpu",
            (None, Some(device)) => match device.profile().vendor.as_str() {
                "Apple" => "metal",
                "AMD" => "rocm",
                "Intel" => "vulkan",
                _ => "cuda",
            },
            (None, None) => "",
        };
        let first = backends.first().copied().unwrap_or_default();
        backends.iter().copied().find(|backend| *backend == wanted).unwrap_or(first)
    }
}

/// Devices that serving engines hardly run on.
fn is_personal(device: &Device) -> bool {
    device.family() == "apple" || device.generation() == "cpu"
}

/// The profile of engines that have none of their own.
const DEFAULT: &str = "serving";

fn existing(catalog: &Catalog, slug: &str) -> Result<Option<Arc<Engine>>, CatalogError> {
    match catalog.engine(slug) {
        Ok(engine) => Ok(Some(engine)),
        Err(CatalogError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first of these profiles that the catalog has, or else a general one.
fn first_existing(catalog: &Catalog, slugs: Vec<String>, reason: String) -> Result<EngineChoice, CatalogError> {
    let wanted = slugs.first().cloned().unwrap_or_default();
    for slug in slugs.iter().map(String::as_str).chain([DEFAULT]) {
        if let Some(engine) = existing(catalog, slug)? {
            let note = format!("{reason}: profile {}", engine.slug);
            // A profile may answer to the names of several eras.
            return Ok(match slug == wanted {
                true => EngineChoice { wanted: engine.slug.clone(), note, engine },
                false => EngineChoice { note: format!("{note}, for want of {wanted}"), wanted, engine },
            });
        }
    }
    let note = format!("{reason}: profile ideal, for want of {wanted}");
    Ok(EngineChoice { engine: Arc::new(Engine::ideal()), wanted, note })
}

/// A version that orders: numbers between dots, or the build number of llama.cpp.
#[derive(Clone, Debug, PartialEq)]
enum Version {
    Numbers(Vec<u32>),
    Build(u32),
}

impl Version {
    /// Reads what stands at the beginning: `0.9.0 (a30b324)`, `v1.2.0rc6.post2`, `b7948 b828e18c7`. Commits and branches are none.
    fn read(text: &str) -> Option<Self> {
        let word = text.split_whitespace().next()?;
        if let Some(build) = word.strip_prefix('b').filter(|digits| digits.len() >= 3 && digits.len() <= 5) {
            return build.parse().ok().map(Self::Build);
        }
        let parts: Vec<&str> = word.trim_start_matches('v').split('.').collect();
        let numbers = parts.iter().map_while(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part.get(..digits)?.parse().ok()
        });
        let numbers: Vec<u32> = numbers.collect();
        (numbers.len() >= 2).then_some(Self::Numbers(numbers))
    }

    /// Whether these eras are told apart by versions of this kind; a single one needs no telling.
    fn orders(&self, eras: &[Era]) -> bool {
        eras.len() == 1
            || eras.iter().any(|era| match self {
                Self::Numbers(_) => !era.from.is_empty(),
                Self::Build(_) => era.from_build > 0,
            })
    }

    fn is_at_least(&self, era: &Era) -> bool {
        match self {
            Self::Numbers(numbers) => numbers.as_slice() >= era.from,
            Self::Build(build) => *build >= era.from_build,
        }
    }
}

/// Year and month that a date begins with; a year alone means its middle.
fn month(date: &str) -> Option<(u32, u32)> {
    let mut parts = date.trim().split(|c: char| !c.is_ascii_digit());
    let year = parts.next()?.parse().ok().filter(|year| (2000..3000).contains(year))?;
    let month = parts.next().and_then(|part| part.parse().ok()).filter(|month| (1..=12).contains(month));
    Some((year, month.unwrap_or(7)))
}

/// An engine and its profiles.
struct Family {
    /// Names in lower case without separators and dots.
    names: &'static [&'static str],
    /// Backends with profiles of their own; where none is named and the device is unknown, the first.
    backends: &'static [&'static str],
    /// From old to new.
    eras: &'static [Era],
}

/// Versions of an engine that one profile stands for.
struct Era {
    /// Slug of the profile, `{}` standing for the backend.
    slug: &'static str,
    /// First version.
    from: &'static [u32],
    /// First build number, for llama.cpp.
    from_build: u32,
    /// Year and month of the first version.
    since: (u32, u32),
}

const fn era(slug: &'static str, from: &'static [u32], since: (u32, u32)) -> Era {
    Era { slug, from, from_build: 0, since }
}

const fn always(slug: &'static str) -> Era {
    era(slug, &[], (0, 0))
}

/// llama.cpp numbers its builds: b2300 is of March 2024, b3300 of July 2024, b5780 of July 2025, b7600 of January 2026, b9450 of June 2026 (release dates on GitHub,
/// interpolated).
const fn llama_cpp(slug: &'static str, from_build: u32, since: (u32, u32)) -> Era {
    Era { slug, from: &[], from_build, since }
}

const LLAMA_CPP: &[Era] = &[
    llama_cpp("llama-cpp-{}-2023", 0, (0, 0)),
    llama_cpp("llama-cpp-{}-2024", 2300, (2024, 3)),
    llama_cpp("llama-cpp-{}-2024-h2", 3300, (2024, 7)),
    llama_cpp("llama-cpp-{}-2025", 5780, (2025, 7)),
    llama_cpp("llama-cpp-{}-2026", 7600, (2026, 1)),
    llama_cpp("llama-cpp-{}-2026-06", 9450, (2026, 6)),
];

const LLAMA_CPP_BACKENDS: &[&str] = &["cuda", "metal", "rocm", "vulkan", "cpu"];

const fn family(names: &'static [&'static str], eras: &'static [Era]) -> Family {
    Family { names, backends: &[], eras }
}

const FAMILIES: &[Family] = &[
    family(
        &["vllm"],
        &[
            always("vllm-2024"),
            era("vllm-0.6.5", &[0, 6, 5], (2024, 12)),
            era("vllm-0.8", &[0, 8], (2025, 3)),
            era("vllm-0.9", &[0, 9], (2025, 5)),
            era("vllm-0.10", &[0, 10], (2025, 7)),
            era("vllm-0.17", &[0, 17], (2026, 3)),
            era("vllm-2026", &[0, 21], (2026, 5)),
            era("vllm-0.27", &[0, 27], (2026, 8)),
        ],
    ),
    family(&["sglang"], &[always("sglang-2024"), era("sglang-2026", &[0, 5], (2025, 8))]),
    family(
        &["tensorrtllm", "trtllm"],
        &[
            always("tensorrt-llm-0.9"),
            era("tensorrt-llm-2025", &[0, 14], (2024, 11)),
            era("tensorrt-llm-2026", &[1], (2025, 9)),
        ],
    ),
    family(&["nim"], &[always("nim-2024")]),
    // No profile of its own: its scheduler and kernels were close to vLLM's.
    family(&["tgi", "textgenerationinference"], &[always("vllm-2024"), era("vllm-0.8", &[3], (2025, 3))]),
    family(&["lmdeploy", "turbomind"], &[always("lmdeploy")]),
    family(&["transformers", "huggingface", "hftransformers"], &[always("transformers")]),
    family(&["deepspeed", "deepspeedmii", "deepspeedfastgen"], &[always("deepspeed")]),
    family(&["neuronx", "transformersneuronx"], &[always("neuronx")]),
    family(&["optimumhabana"], &[always("optimum-habana")]),
    family(&["mlx", "mlxlm"], &[always("mlx")]),
    family(&["exllamav2", "exllama", "exllamav3"], &[always("exllamav2")]),
    family(&["mlc", "mlcllm"], &[always("mlc")]),
    family(&["autoawq"], &[always("autoawq")]),
    Family {
        names: &["llamacpp", "llamabench", "llamacpppython", "koboldcpp", "lmstudio", "gpt4all"],
        backends: LLAMA_CPP_BACKENDS,
        eras: LLAMA_CPP,
    },
    // Version numbers of Ollama say nothing about llama.cpp's builds: its date counts.
    Family { names: &["ollama"], backends: LLAMA_CPP_BACKENDS, eras: LLAMA_CPP },
    Family { names: &["llamafile"], backends: LLAMA_CPP_BACKENDS, eras: &[always("llama-cpp-{}-2024-h2")] },
    Family { names: &["ds4"], backends: LLAMA_CPP_BACKENDS, eras: &[always("llama-cpp-{}-2026")] },
    Family { names: &["ikllamacpp"], backends: &["cuda", "cpu", "vulkan"], eras: &[always("ik-llama-cpp-{}")] },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(query: EngineQuery<'_>) -> String {
        query.choose(Catalog::embedded()).unwrap().wanted
    }

    fn versioned(name: &str, version: &str) -> String {
        wanted(EngineQuery { version: Some(version), ..EngineQuery::new(name) })
    }

    fn dated(name: &str, date: &str, device: &str) -> String {
        let device = Catalog::embedded().device(device).unwrap();
        wanted(EngineQuery { date: Some(date), device: Some(&device), ..EngineQuery::new(name) })
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(versioned("vllm", "0.7.3"), "vllm-0.6.5");
        assert_eq!(versioned("vllm", "0.10.0 (ROCm 6.4.1)"), "vllm-0.10");
        assert_eq!(versioned("TensorRT-LLM", "0.14.0 (Triton tensorrtllm_backend)"), "tensorrt-llm-2025");
        assert_eq!(versioned("tensorrt-llm", "0.9.0"), "tensorrt-llm-0.9");
        assert_eq!(versioned("trt-llm", "v1.2.0rc6.post2"), "tensorrt-llm-2026");
        assert_eq!(versioned("sglang", "0.4.6.post1"), "sglang-2024");
        assert_eq!(versioned("llama.cpp", "b3299"), "llama-cpp-cuda-2024");
        // From July 2024 on quantized matrices were multiplied as they are; `llama-cpp-cuda-2024-h2` is another name of that profile.
        assert_eq!(versioned("llama.cpp", "b4384 14b699ec"), "llama-cpp-cuda-2024-mmq");
        assert_eq!(versioned("llama.cpp", "b5780"), "llama-cpp-cuda-2025");
        assert_eq!(versioned("llama.cpp", "b9496"), "llama-cpp-cuda-2026-06");
    }

    #[test]
    fn what_is_no_version_leaves_it_to_the_date_or_the_newest() {
        let query = EngineQuery { version: Some("acbed3e"), date: Some("2023-10"), ..EngineQuery::new("vllm") };
        assert_eq!(wanted(query), "vllm-2024");
        assert_eq!(versioned("sglang", "nightly-dev"), "sglang-2026");
        assert_eq!(wanted(EngineQuery::new("vllm")), "vllm-0.27");
        assert_eq!(dated("vllm", "2024", "h100"), "vllm-2024");
    }

    #[test]
    fn unknown_engines_get_what_runs_on_the_device() {
        let on = |device: &str| {
            let device = Catalog::embedded().device(device).unwrap();
            EngineQuery { device: Some(&device), ..EngineQuery::new("house engine") }
                .choose(Catalog::embedded())
                .unwrap()
        };
        assert_eq!(on("h100-sxm-80gb").engine.slug, "serving");
        assert_eq!(on("m2-ultra-76c").engine.slug, "llama-cpp-metal-2026-06");
        assert!(on("epyc-9654").note.starts_with("`house engine` is no known engine, llama.cpp stands for it: "));
    }

    #[test]
    fn local_engines_are_split_by_backend_and_time() {
        assert_eq!(dated("llama.cpp", "2024-02", "rtx-4090-24gb"), "llama-cpp-cuda-2023");
        assert_eq!(dated("llama.cpp", "2024-03", "m2-ultra-76c"), "llama-cpp-metal-2024");
        assert_eq!(dated("llama.cpp", "2024-06", "rtx-4090-24gb"), "llama-cpp-cuda-2024");
        assert_eq!(dated("llama.cpp", "2025-06", "rtx-4090-24gb"), "llama-cpp-cuda-2024-mmq");
        assert_eq!(dated("llama.cpp", "2025-06", "rx-7900-xtx-24gb"), "llama-cpp-rocm-2024");
        assert_eq!(dated("llama.cpp", "2025-07-01", "strix-halo-128gb"), "llama-cpp-rocm-2025");
        assert_eq!(dated("llama.cpp", "2026-05", "arc-b580-12gb"), "llama-cpp-vulkan-2026");
        assert_eq!(dated("llama.cpp", "2026-08 (transcribed)", "arc-b580-12gb"), "llama-cpp-vulkan-2026-06");
        assert_eq!(dated("ik_llama.cpp", "2025", "epyc-9755"), "ik-llama-cpp-cpu");
        assert_eq!(dated("llamafile", "2025-03", "m1-pro-16c"), "llama-cpp-metal-2024");
        assert_eq!(dated("ollama", "2025", "rtx-4090-24gb"), "llama-cpp-cuda-2025");
        let query = EngineQuery { backend: Some("vulkan"), date: Some("2026"), ..EngineQuery::new("llama.cpp") };
        assert_eq!(wanted(query), "llama-cpp-vulkan-2026-06");
    }

    #[test]
    fn the_nearest_profile_of_the_catalog_is_taken() {
        let mut engine = Engine::ideal();
        engine.slug = "llama-cpp-cuda-2025".into();
        engine.name = "llama.cpp of 2025".into();
        engine.aliases.clear();
        let catalog = Catalog::empty().with_engine(engine);
        let query = EngineQuery { date: Some("2023-11"), backend: Some("cuda"), ..EngineQuery::new("llama.cpp") };
        let choice = query.choose(&catalog).unwrap();
        assert_eq!(
            (choice.engine.slug.as_str(), choice.wanted.as_str()),
            ("llama-cpp-cuda-2025", "llama-cpp-cuda-2023")
        );
        assert_eq!(
            choice.note,
            "no version known, dated 2023-11: profile llama-cpp-cuda-2025, for want of llama-cpp-cuda-2023"
        );
        let choice = EngineQuery::new("vllm").choose(&catalog).unwrap();
        assert_eq!((choice.engine.slug.as_str(), choice.wanted.as_str()), ("ideal", "vllm-0.27"));
        assert!(choice.note.ends_with(": profile ideal, for want of vllm-0.27"), "{}", choice.note);
    }

    #[test]
    fn unknown_engines_get_a_general_profile_and_slugs_are_taken_as_they_are() {
        let choice = EngineQuery::new("house engine").choose(Catalog::embedded()).unwrap();
        assert!(choice.note.starts_with("`house engine` is no known engine: profile "), "{}", choice.note);
        assert_eq!(wanted(EngineQuery::new("ideal")), "ideal");
    }
}
