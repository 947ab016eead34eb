use super::*;

#[test]
fn one_form_of_each() {
    for (given, wanted) in [
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("100", "100"),
        ("0Gi", "0"),
        ("00.0", "0"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("12E2", "1200"),
        ("1E", "1E"),
        ("-1000m", "-1"),
        ("+2", "2"),
        ("0.1n", "1n"),
        ("1.3Ki", "1332"),
    ] {
        assert_eq!(canonical(&given.into()).as_deref(), Some(wanted), "{given}");
    }
    assert_eq!(canonical(&serde_json::json!(1500)).as_deref(), Some("1500"));
    assert_eq!(canonical(&serde_json::json!(2.5)).as_deref(), Some("2500m"));
    for bad in ["", "x", "1x", "1.2.3", "e3"] {
        assert_eq!(canonical(&bad.into()), None, "{bad}");
    }
}
