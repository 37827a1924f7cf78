//! One model in two formats: a GGUF header and a `config.json` must tell the same.

use llm_roofline::import::gguf::Header;
use llm_roofline::import::huggingface::model_from_config;
use std::fs;
use std::path::PathBuf;

#[test]
fn header_and_config_describe_the_same_model() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/gguf");
    let mut pairs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let config = entry.unwrap().path();
        if config.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = config.display().to_string();
        let header = Header::open(config.with_extension("gguf")).unwrap().model().unwrap().model;
        let config = model_from_config(&fs::read_to_string(&config).unwrap(), &name).unwrap();
        assert_eq!(header.params_total(), config.params_total(), "{name}");
        assert_eq!(header.params_active(), config.params_active(), "{name}");
        let (header, config) = (header.architecture().unwrap(), config.architecture().unwrap());
        assert_eq!(header.layers(), config.layers(), "{name}");
        assert_eq!(header.kv_elements_per_token(), config.kv_elements_per_token(), "{name}");
        assert_eq!(header.kv_elements(100_000), config.kv_elements(100_000), "{name}");
        assert_eq!(header.state_elements(), config.state_elements(), "{name}");
        pairs += 1;
    }
    assert_eq!(pairs, 12);
}
