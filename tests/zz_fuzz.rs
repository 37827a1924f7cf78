//! Fuzz.
use llm_roofline::import::huggingface::model_from_config;
use serde_json::{Value, json};
fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(""),
        json!(-1),
        json!(0),
        json!(1),
        json!(3),
        json!(1e308),
        json!(0.5),
        json!([]),
        json!({}),
        json!(u64::MAX),
        json!(1u64 << 40),
        json!(1u64 << 24),
        json!(1u64 << 23),
        json!(true),
        json!("x"),
        json!([1]),
        json!([null]),
        json!([[1, 2]]),
        json!({"a":1}),
        json!(vec![1u64 << 24; 200]),
        json!(4096),
    ]
}
fn paths(v: &Value, p: Vec<String>, out: &mut Vec<Vec<String>>) {
    if let Value::Object(m) = v {
        for (k, x) in m {
            if k.starts_with('_') {
                continue;
            }
            let mut q = p.clone();
            q.push(k.clone());
            out.push(q.clone());
            paths(x, q, out);
        }
    }
}
fn set(v: &mut Value, p: &[String], x: Option<Value>) {
    let mut cur = v;
    for k in &p[..p.len() - 1] {
        cur = cur.get_mut(k).unwrap();
    }
    let m = cur.as_object_mut().unwrap();
    let k = &p[p.len() - 1];
    match x {
        Some(x) => {
            m.insert(k.clone(), x);
        }
        None => {
            m.remove(k);
        }
    }
}
#[test]
fn fuzz() {
    let dir = std::env::var("FUZZ").unwrap();
    let (mut n, mut ok, mut slow) = (0, 0, std::time::Duration::ZERO);
    for e in std::fs::read_dir(dir).unwrap() {
        let f = e.unwrap().path();
        let t = std::fs::read_to_string(&f)
            .unwrap()
            .replace("-Infinity", "-1e9")
            .replace("Infinity", "1e9")
            .replace("NaN", "null");
        let v: Value = serde_json::from_str(&t).unwrap();
        let mut ps = vec![];
        paths(&v, vec![], &mut ps);
        let base = model_from_config(&t, "config.json");
        for p in &ps {
            for x in std::iter::once(None).chain(values().into_iter().map(Some)) {
                let mut w = v.clone();
                set(&mut w, p, x.clone());
                let s = w.to_string();
                let t0 = std::time::Instant::now();
                let r = std::panic::catch_unwind(|| {
                    let r = model_from_config(&s, "config.json");
                    if let Ok(m) = &r {
                        let a = m.architecture().unwrap();
                        let tot = m.params_total();
                        let act = m.params_active();
                        assert!(
                            tot > 0
                                && act > 0
                                && a.kv_elements_per_token().is_finite()
                                && a.kv_elements(1 << 30).is_finite()
                        );
                        let _ = a.state_elements();
                        let mut sum = 0u64;
                        a.for_each_tensor(|t| sum += t.params);
                        assert_eq!(sum, tot);
                        assert!(tot < 1 << 62, "{tot}");
                        if let Ok(b) = &base {
                            if b.params_total() == 0 {
                                panic!()
                            }
                        }
                    }
                    r.map(|m| m.params_total()).map_err(|e| e.to_string())
                });
                let dt = t0.elapsed();
                if dt > slow {
                    slow = dt;
                    println!(
                        "slowest {dt:?} {f:?} {p:?} {:?}",
                        x.as_ref().map(|x| x.to_string().chars().take(40).collect::<String>())
                    );
                }
                n += 1;
                match r {
                    Err(_) => println!("PANIC {f:?} {p:?} {x:?}"),
                    Ok(Ok(_)) => ok += 1,
                    Ok(Err(m)) => {
                        if m.len() > 4000 || m.contains('\n') {
                            println!("LONG {} {p:?} {}", f.display(), m.len());
                        }
                    }
                }
            }
        }
    }
    println!("{n} mutants, {ok} accepted, slowest {slow:?}");
}
