from xlm.corpora.drops import DropCounts


def test_counts_by_language_source_and_reason_survive_json():
    drops = DropCounts()
    drops.add("de", "django", "empty")
    drops.add("de", "django", "empty", 2)
    drops.add("fr", "gramps", "fuzzy", 5)
    drops.add("fr", "gramps", "never", 0)
    assert drops.nested() == {"de": {"django": {"empty": 3}}, "fr": {"gramps": {"fuzzy": 5}}}
    again = DropCounts()
    again.merge(drops.nested())
    again.merge(drops.nested())
    assert again.total() == 16
    assert again.by_reason() == {"empty": 6, "fuzzy": 10}
    assert again.by_reason(["de"]) == {"empty": 6}
