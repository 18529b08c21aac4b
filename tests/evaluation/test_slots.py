"""The slot task from its sets to its scores, on a made-up language in which the first words after "in" are areas."""

import numpy as np
import pytest
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.scheme import IOB2

from xlm.config.model import ModelConfig
from xlm.config.recipe import EvaluationSection
from xlm.errors import UserError
from xlm.evaluation.intent_task import load_intent_task
from xlm.evaluation.readout import Readout
from xlm.evaluation.slot_scores import SlotScores
from xlm.evaluation.slot_systems import SlotSystems, TagSystem, contexts
from xlm.evaluation.slot_task import SlotTask, TaggedSentences, load_slot_task
from xlm.evaluation.trained_encoder import TrainedEncoder
from xlm.model.encoder import Encoder
from xlm.tasks.evaluation_sets import LabelledText, save_labelled
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

AREAS = ("kitchen", "dining room", "hall", "attic")


def sentence(number, template, split, area, tags=None, text="light on in the {} now"):
    text = text.format(area)
    area_tags = " ".join(["B-area", *["I-area"] * area.count(" ")])
    return LabelledText(
        f"{split}{number}{area}", text, "Light" if number % 2 else "Door", f"t{template}", split, tags or f"O O O O {area_tags} O"
    )


@pytest.fixture
def folder(tmp_path):
    train = [sentence(number, number, "train", AREAS[number % 4]) for number in range(12)]
    dev = [sentence(number, 20 + number, "dev", AREAS[number % 4]) for number in range(4)]
    test = [sentence(number, 30 + number, "test", AREAS[number % 4]) for number in range(6)]
    save_labelled(tmp_path, "intents", "en", [*train, *dev, *test])
    unknown = sentence(7, 50, "test", "hall", "O O O O B-floor O")
    save_labelled(
        tmp_path,
        "intents",
        "de",
        [
            *(
                sentence(
                    number,
                    40 + number,
                    "test",
                    AREAS[number % 4],
                    text="licht an in {}",
                    tags="O O O " + ("B-area I-area" if number % 4 == 1 else "B-area"),
                )
                for number in range(6)
            ),
            unknown,
        ],
    )
    return tmp_path


@pytest.fixture
def task(folder):
    return load_slot_task(folder, load_intent_task(folder, ("en", "de"), (1, 2)))


def test_the_task_has_the_tags_of_training_and_the_sentences_of_the_intents(task, folder):
    assert task.tags == ("O", "B-area", "I-area")
    assert len(task.train) == 12
    assert len(task.tests["de"]) == 6
    assert task.unknown == {"en": {}, "de": {"floor": 1}}
    assert [rows.tolist() for rows in task.subsets] == [rows.tolist() for rows in load_intent_task(folder, ("en",), (1, 2)).subsets]
    assert task.labels(["O", "I-area", "I-floor"]).tolist() == [0, 2, 0]


def test_templates_without_slots_are_no_task(tmp_path):
    rows = [sentence(n, n, split, "hall", "O O O O O O") for split in ("train", "dev", "test") for n in range(3)]
    save_labelled(tmp_path, "intents", "en", [LabelledText(s.id, s.text, s.label, s.template + s.split, s.split, s.tags) for s in rows])
    assert load_slot_task(tmp_path, load_intent_task(tmp_path, ("en",), (1,))) is None


def test_every_system_tags_every_word(task):
    vocabulary = train_vocabulary([*task.train.texts, *task.tests["de"].texts] * 10, VocabularySpec(size=300, threads=1))
    config = ModelConfig(width=16, layers=1, heads=2, feed_forward=32, max_positions=32, initializer_range=0.3)
    trained = TrainedEncoder(Encoder(config, vocabulary.size, 1), vocabulary, config, ("en", "de"), 1, None, "fp32")
    evaluation = EvaluationSection(
        finetune_epochs=20, finetune_batch_size=4, finetune_learning_rates=(5e-3,), freeze_token_embeddings=False
    )
    epochs = []
    build = SlotSystems(trained, task, evaluation)
    systems = [
        build.probe(Readout((0, -1))),
        build.finetuned(lambda: epochs.append(1)),
        build.character_floor(),
        build.random_encoder(Readout((-1,))),
    ]
    assert [system.name for system in systems] == ["probe", "finetuned", "character_floor", "random_encoder"]
    assert len(epochs) == 40
    for system in systems:
        for language, test in task.tests.items():
            assert len(system.predictions[language]) == 2
            for rows in system.predictions[language]:
                assert [len(tags) for tags in rows] == [len(tags) for tags in test.tags]
    record = SlotScores(task, systems, bootstrap_samples=100, mean_languages=("de",)).record()
    english = record["languages"]["en"]["systems"]
    assert english["finetuned"]["f1"] > 90
    assert english["character_floor"]["f1"] > 90
    assert record["languages"]["de"]["unknown_slots"] == {"floor": 1}
    assert record["languages"]["de"]["entities"] == 6


def test_a_word_inside_a_piece_continues_its_slot(task):
    """In 打开厨房灯, 厨房 is one piece: what is B- at its first character is I- at its second."""
    build = SlotSystems.__new__(SlotSystems)
    build._task = SlotTask(
        ("O", "B-area", "I-area"),
        task.train,
        task.dev,
        {"zh": TaggedSentences(("厨房灯", "厨"), (("O",) * 3, ("O",)), ("a", "b"))},
        {},
        (1,),
        (),
    )

    class Located:
        continued = (np.array([False, True, False]), np.array([False]))

    assert build._sentences("zh", np.array([1, 1, 0, 2]), Located()) == [("B-area", "I-area", "O"), ("I-area",)]
    assert build._sentences("zh", np.array([1, 1, 0, 2])) == [("B-area", "B-area", "O"), ("I-area",)]


def test_scores_are_those_of_seqeval():
    rng = np.random.default_rng(4)
    names = ("O", "B-a", "I-a", "B-b", "I-b")

    def draw():
        return [tuple(rng.choice(names, size)) for size in rng.integers(1, 9, 60)]

    gold = draw()
    gold = [tuple("O" if tag[0] == "I" and (not w or tags[w - 1][2:] != tag[2:]) else tag for w, tag in enumerate(tags)) for tags in gold]
    first, second = ([tuple(rng.choice(names) if rng.random() < 0.3 else tag for tag in tags) for tags in gold] for _ in range(2))
    sentences = TaggedSentences(("x",) * 60, tuple(gold), tuple(f"t{n % 9}" for n in range(60)))
    task = SlotTask(names, sentences, sentences, {"en": sentences}, {"en": {}}, (3, 4), ())
    system = TagSystem("probe", {"en": [first, second]}, 0.0)
    floor = TagSystem("character_floor", {"en": [second, first]}, 0.0)
    scores = SlotScores(task, [system, floor], bootstrap_samples=200, mean_languages=("en",))
    entry = scores.by_language()["en"]
    found = entry["systems"]["probe"]
    lists = [list(map(list, rows)) for rows in (gold, first, second)]
    expected = [100 * seqeval_f1(lists[0], rows) for rows in lists[1:]]
    assert [found["seeds"]["3"], found["seeds"]["4"]] == pytest.approx(expected, abs=1e-3)
    assert found["f1"] == pytest.approx(np.mean(expected), abs=1e-3)
    strict = [100 * seqeval_f1(lists[0], rows, mode="strict", scheme=IOB2) for rows in lists[1:]]
    assert found["strict_f1"] == pytest.approx(np.mean(strict), abs=1e-3)
    assert found["interval"][0] < found["f1"] < found["interval"][1]
    assert entry["differences"]["probe-character_floor"]["gain"] == pytest.approx(0, abs=1e-3)
    assert scores.means()["slots.probe"] == found["f1"]


def test_a_word_stands_between_its_neighbours():
    assert contexts(["turn it off", "", "go"]) == [("", "turn", "it"), ("turn", "it", "off"), ("it", "off", ""), ("", "go", "")]


def test_a_language_without_a_known_slot_is_left_out_and_its_slots_are_named(folder):
    save_labelled(
        folder, "intents", "ja", [sentence(1, 60, "test", "hall", "O O O O B-floor O"), sentence(2, 61, "test", "attic", "O O O O O O")]
    )
    task = load_slot_task(folder, load_intent_task(folder, ("en", "de", "ja"), (1,)))
    assert set(task.tests) == {"en", "de"}
    assert task.unknown["ja"] == {"floor": 1}


def test_tags_that_do_not_fit_are_one_sentence(folder):
    save_labelled(folder, "intents", "de", [sentence(1, 60, "test", "hall", "O B-area")])
    with pytest.raises(UserError, match="sentence test1hall has 2 tags for 6 words; build the tasks again"):
        load_slot_task(folder, load_intent_task(folder, ("en", "de"), (1,)))
